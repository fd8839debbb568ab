package window_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// May this address try to log in now, and if not, when?
func Example_loginThrottle() {
	client := redistest.Client(nil) // yours comes from rueidis.NewClient
	l, err := window.New(client, window.Config{
		Name:   "login",
		Limits: []window.Limit{window.Every(5 * time.Second), window.PerHour(5), window.PerDay(20)},
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for range 2 {
		d, err := l.Allow(ctx, "198.51.100.7")
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Allowed, d.Tightest().Limit, d.RetryAfter.Round(time.Second))
	}
	_ = l.Reset(ctx, "198.51.100.7")
	// Output:
	// true 1/5s 0s
	// false 1/5s 5s
}

// How do I spend a budget by cost, such as $2,000 a day, and give back what was not used?
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

// How do I send at most 10 push notifications a minute, with 30 ms between two, without dropping any?
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

// How do I tell a denial from a failure?
func ExampleLimiter_AllowN() {
	l, _ := window.NewLocal(window.Config{Name: "sms", Limits: []window.Limit{window.PerDay(10)}})
	_, err := l.AllowN(context.Background(), "+1 555 0100", 11)
	fmt.Println(errors.Is(err, window.ErrExceedsLimit))
	fmt.Println(err)
	// Output:
	// true
	// slidegate: limiter "sms": 11 units under 10/1d: more units than a limit ever admits; ask for fewer, or raise its Max
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

// A message counts for the sender and for the receiver, or for neither: first asked is the sender, who cannot use up what the receiver
// has left once his own is gone.
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
	// ann false 1
	// ben true 2
	// cat false 2
}
