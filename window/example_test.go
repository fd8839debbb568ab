package window_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slidegate/slidegate/window"
)

// How do I limit within one process, without Redis?
func ExampleNewLocal() {
	limiter, err := window.NewLocal(window.Config{
		Name:   "login",
		Limits: []window.Limit{window.Every(time.Minute), window.PerHour(5), window.PerDay(20)},
	})
	if err != nil {
		panic(err)
	}
	for range 2 {
		d, err := limiter.Allow(context.Background(), "198.51.100.7")
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Allowed, d.Tightest().Limit, d.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true 1/1m 0s
	// false 1/1m 1m0s
}

// How does each customer get the limits of a plan, and what happens to the counts when the plan
// changes? With keeps the counts of each limit with the same Per. A limit with another Per starts
// at zero.
func ExampleLimiter_With() {
	free, err := window.NewLocal(window.Config{Name: "api", Limits: []window.Limit{window.PerHour(2)}}) // or window.New
	if err != nil {
		panic(err)
	}
	paid, err := free.With(window.PerMinute(3), window.PerHour(4))
	if err != nil {
		panic(err)
	}
	for _, plan := range []*window.Limiter{free, free, free, paid, paid, free} {
		d, err := plan.Allow(context.Background(), "customer 17")
		if err != nil {
			panic(err)
		}
		fmt.Print("allowed ", d.Allowed)
		for _, u := range d.Usage {
			fmt.Print(", ", u.Used, " used of ", u.Limit)
		}
		fmt.Println()
	}
	// Output:
	// allowed true, 1 used of 2/1h
	// allowed true, 2 used of 2/1h
	// allowed false, 2 used of 2/1h
	// allowed true, 1 used of 3/1m, 3 used of 4/1h
	// allowed true, 2 used of 3/1m, 4 used of 4/1h
	// allowed false, 4 used of 2/1h
}

// How do I decide many events at once? Calls made at the same time share round trips.
func ExampleLimiter_Allow_concurrently() {
	limiter, err := window.NewLocal(window.Config{Name: "mail", Limits: []window.Limit{window.PerDay(1)}}) // or window.New
	if err != nil {
		panic(err)
	}
	recipients := []string{"ann@example.com", "ben@example.com", "ann@example.com"}
	granted := make([]int64, len(recipients))
	var group errgroup.Group
	group.SetLimit(64)
	for i, recipient := range recipients {
		group.Go(func() error {
			d, err := limiter.Allow(context.Background(), recipient)
			granted[i] = d.Granted
			return err
		})
	}
	if err := group.Wait(); err != nil { // in a cluster, one shard can fail alone
		panic(err)
	}
	fmt.Println(granted[0]+granted[2], granted[1])
	// Output: 1 1
}

// How many of 250 messages may I send now, and when may I send more?
func ExampleLimiter_AllowUpTo() {
	limiter, err := window.NewLocal(window.Config{Name: "messages", Limits: []window.Limit{window.PerMinute(100)}}) // or window.New
	if err != nil {
		panic(err)
	}
	d, err := limiter.AllowUpTo(context.Background(), "account 17", 250)
	if err != nil {
		panic(err)
	}
	fmt.Println("send", d.Granted, "now, and more after", d.RetryAfter)
	// Output: send 100 now, and more after 1m0s
}

// How do I limit language model tokens if their number is known only after the call? Charge an
// estimate, then settle it.
func ExampleLimiter_Settle() {
	ctx := context.Background()
	limiter, err := window.NewLocal(window.Config{Name: "tokens", Limits: []window.Limit{window.PerMinute(10_000)}}) // or window.New
	if err != nil {
		panic(err)
	}
	for _, actual := range []int64{1_200, 9_500, 100} {
		const estimate = 3_000 // for example, the length of the prompt plus the maximum length of the answer
		d, err := limiter.AllowN(ctx, "customer 17", estimate)
		if err != nil {
			panic(err)
		}
		if !d.Allowed {
			fmt.Println("denied")
			continue
		}
		// Call the model here. It reports the actual number of tokens.
		if _, err := limiter.Settle(ctx, "customer 17", d, actual); err != nil {
			panic(err)
		}
		s, err := limiter.Inspect(ctx, "customer 17")
		if err != nil {
			panic(err)
		}
		fmt.Println(s.Limits[0].Used, "tokens used")
	}
	// Output:
	// 1200 tokens used
	// 10700 tokens used
	// denied
}

// How do I limit by cost, such as $2,000 a day, and refund what was not used?
func ExampleLimiter_Refund() {
	l, _ := window.NewLocal(window.Config{Name: "transfers", Limits: []window.Limit{window.PerDay(2000_00)}})
	ctx := context.Background()
	d, _ := l.AllowN(ctx, "account 17", 1500_00)
	fmt.Println(d.Allowed, d.Remaining)
	_ = l.Refund(ctx, "account 17", d) // the transfer failed
	again, _ := l.AllowN(ctx, "account 17", 1800_00)
	fmt.Println(again.Allowed, again.Remaining)
	// Output:
	// true 50000
	// true 20000
}

// How do I send at most 10 push notifications a minute, at least 30 ms apart, without dropping any?
func ExampleLimiter_Wait() {
	l, _ := window.NewLocal(window.Config{Name: "push", Limits: []window.Limit{window.PerMinute(10), window.Every(30 * time.Millisecond)}})
	begin := time.Now()
	for range 3 {
		if _, err := l.Wait(context.Background(), "device 4"); err != nil {
			panic(err)
		}
	}
	fmt.Println(time.Since(begin) >= 60*time.Millisecond)
	// Output: true
}

// How do I recognise a request that can never be allowed? It costs more units than a limit has.
func ExampleLimiter_AllowN() {
	l, _ := window.NewLocal(window.Config{Name: "sms", Limits: []window.Limit{window.PerDay(10)}})
	_, err := l.AllowN(context.Background(), "+1 555 0100", 11)
	fmt.Println(errors.Is(err, window.ErrExceedsLimit))
	fmt.Println(strings.ReplaceAll(err.Error(), "; ", ";\n"))
	// Output:
	// true
	// slidegate: limiter "sms": 11 units under 10/1d: more units than a limit can ever allow;
	// ask for fewer, or raise its Max
}

// How do I see why an event is denied?
func ExampleLimiter_Inspect() {
	at := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	l, _ := window.NewLocal(window.Config{
		Name: "login", Limits: []window.Limit{window.PerHour(5)}, Now: func() time.Time { return at },
	})
	for range 2 {
		_, _ = l.Allow(context.Background(), "alice")
		at = at.Add(time.Minute)
	}
	s, _ := l.Inspect(context.Background(), "alice")
	fmt.Println(s.Key, s.Limits[0].Limit, s.Limits[0].Used, "used")
	for _, b := range s.Limits[0].Buckets {
		fmt.Println(b.Last.Format(time.TimeOnly), b.Units)
	}
	// Output:
	// login:{alice}:w 5/1h 2 used
	// 12:00:00 1
	// 12:01:00 1
}

// How do limits come from a flag, a file or the environment?
func ExampleParseLimit() {
	l, err := window.ParseLimit("5/1h")
	fmt.Println(l.Max, l.Per, err)
	fmt.Println(window.PerDay(100)) // buckets of 24 minutes
	_, err = window.ParseLimit("5 per hour")
	fmt.Println(err)
	// Output:
	// 5 1h0m0s <nil>
	// 100/1d@24m
	// limit "5 per hour": has no slash; write units per time, as in 5/1h
}

// How does a message count for both its sender and its receiver, or for neither? AllowAll asks the
// sender's limiter first. A sender without units left therefore uses up none of the receiver's.
func ExampleAllowAll() {
	senders, err := window.NewLocal(window.Config{Name: "senders", Limits: []window.Limit{window.PerHour(2)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	receivers, err := window.NewLocal(window.Config{Name: "receivers", Limits: []window.Limit{window.PerHour(3)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, sender := range []string{"ann", "ann", "ann", "ben", "cat"} {
		j, err := window.AllowAll(context.Background(),
			window.Check{Limiter: senders, Event: sender, N: 1},
			window.Check{Limiter: receivers, Event: "dora", N: 1})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(sender, j.Allowed, len(j.Decisions))
	}
	// Output:
	// ann true 2
	// ann true 2
	// ann false 2
	// ben true 2
	// cat false 2
}
