package pace_test

import (
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// How do I call an API that allows one call every 20 ms? In a service, use New instead of NewLocal,
// so that the turns of all processes are coordinated.
func ExampleLimiter_Wait() {
	limiter, err := pace.NewLocal(pace.Config{
		Name:   "api.example.com",
		Limits: []window.Limit{window.Every(20 * time.Millisecond)},
	})
	if err != nil {
		panic(err)
	}
	began := time.Now()
	for range 3 {
		if err := limiter.Wait(context.Background(), "our account"); err != nil {
			panic(err)
		}
		// call the API
	}
	fmt.Println("within 40 ms:", time.Since(began) < 39*time.Millisecond) // turns are in whole milliseconds
	// Output: within 40 ms: false
}

// How does a job queue book a turn for each job, and start the job when its turn comes? In this
// example, the API says when to come back, so all turns are postponed.
func ExampleLimiter_Reserve() {
	now := time.Unix(1_700_000_000, 0)
	limiter, err := pace.NewLocal(pace.Config{
		Name: "mail", Limits: []window.Limit{window.Every(time.Minute)}, MaxAhead: time.Hour,
		Now: func() time.Time { return now },
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for job := range 3 {
		r, err := limiter.Reserve(ctx, "example.com")
		if err != nil {
			panic(err)
		}
		fmt.Println("job", job, "after", r.Delay)
		if job == 1 {
			_ = limiter.Pause(ctx, "example.com", 10*time.Minute)
			due, err := limiter.Due(ctx, r)
			fmt.Println("now it is due after", due, err)
		}
	}
	// Output:
	// job 0 after 0s
	// job 1 after 1m0s
	// now it is due after 11m0s <nil>
	// job 2 after 12m0s
}
