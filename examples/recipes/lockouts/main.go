// Command lockouts makes a client that keeps guessing wait longer and longer:
// go run ./examples/recipes/lockouts
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/slidegate/slidegate/window"
)

// escalate guesses once a second, and always retries as soon as it may.
func escalate() {
	at := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	guesses, err := window.NewLocal(window.Config{ // or window.New
		Name: "pin",
		Limits: []window.Limit{
			window.PerMinute(5),
			{Max: 10, Per: 10 * time.Minute},
			window.PerHour(20),
			window.PerDay(50),
		},
		Now: func() time.Time { return at }, // only for this program
	})
	if err != nil {
		log.Fatal(err)
	}

	for allowed := 0; allowed < 51; at = at.Add(time.Second) {
		d, err := guesses.Allow(context.Background(), "198.51.100.7")
		if err != nil {
			log.Fatal(err)
		}
		if d.Allowed {
			allowed++
			continue
		}
		fmt.Println("after", allowed, "guesses: wait", d.RetryAfter, "for", d.Tightest().Limit)
		at = at.Add(d.RetryAfter - time.Second)
	}
}

// keepOut guesses every 10 s for an hour, and ignores RetryAfter.
func keepOut() {
	at := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	guesses, err := window.NewLocal(window.Config{ // or window.New
		Name:        "pin",
		Limits:      []window.Limit{window.PerMinute(5), window.PerHour(20)},
		CountDenied: true,
		Now:         func() time.Time { return at }, // only for this program
	})
	if err != nil {
		log.Fatal(err)
	}

	allowed := 0
	for range 6 * 60 {
		d, err := guesses.Allow(context.Background(), "198.51.100.7")
		if err != nil {
			log.Fatal(err)
		}
		if d.Allowed {
			allowed++
		}
		at = at.Add(10 * time.Second)
	}
	d, err := guesses.Peek(context.Background(), "198.51.100.7")
	fmt.Println(allowed, "guesses allowed; retry after", d.RetryAfter, err)
}

func main() {
	escalate()
	keepOut()
	// It prints:
	// after 5 guesses: wait 55s for 5/1m
	// after 10 guesses: wait 8m55s for 10/10m
	// after 15 guesses: wait 55s for 5/1m
	// after 20 guesses: wait 48m55s for 20/1h
	// after 25 guesses: wait 55s for 5/1m
	// after 30 guesses: wait 8m55s for 10/10m
	// after 35 guesses: wait 55s for 5/1m
	// after 40 guesses: wait 48m55s for 20/1h
	// after 45 guesses: wait 55s for 5/1m
	// after 50 guesses: wait 21h58m55s for 50/1d
	// 5 guesses allowed; retry after 56m50s <nil>
}
