package ar1_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/window"
)

// How do I limit the attempts of an IP address, with one number for each limit?
func Example() {
	now := time.Date(2025, time.March, 4, 12, 0, 0, 0, time.UTC)
	l, err := ar1.NewLocal(ar1.Config{
		Name:   "login",
		Limits: []window.Limit{{Max: 5, Per: 10 * time.Second}}, // 5 at once, and up to 10 in any interval of 10 s
		Now:    func() time.Time { return now },
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 6 {
		d, err := l.Allow(context.Background(), "198.51.100.7")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter)
	}
	// Output:
	// true 4 0s
	// true 3 0s
	// true 2 0s
	// true 1 0s
	// true 0 0s
	// false 0 1.017s
}

// How do I measure the rate of events, for a dashboard or a score? A limit far above the traffic
// never denies, and only estimates the rate.
func ExampleLimiter_Inspect() {
	now := time.Date(2025, time.March, 4, 12, 0, 0, 0, time.UTC)
	l, err := ar1.NewLocal(ar1.Config{Name: "rate", Limits: []window.Limit{{Max: 1_000_000, Per: time.Minute}}, Now: func() time.Time { return now }})
	if err != nil {
		log.Fatal(err)
	}
	show := func() {
		s, err := l.Inspect(context.Background(), "198.51.100.7")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("level %.1f, %.2f a second, half of it in %v\n", s.Limits[0].Level, s.Limits[0].Rate, s.Limits[0].HalfLife.Round(time.Second))
	}
	for range 1200 { // four a second for five minutes
		now = now.Add(250 * time.Millisecond)
		if _, err := l.Allow(context.Background(), "198.51.100.7"); err != nil {
			log.Fatal(err)
		}
	}
	show()
	now = now.Add(42 * time.Second)
	show()
	// Output:
	// level 238.9, 3.98 a second, half of it in 42s
	// level 118.6, 1.98 a second, half of it in 42s
}
