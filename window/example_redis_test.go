package window_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/window"
)

// How do several servers share one limit? Each creates a limiter of the same Name on the same Redis
// or Redis Cluster.
func ExampleNew() {
	for _, server := range []string{"server 1", "server 2"} {
		conn := window.Dial("redis://127.0.0.1:6379") // or any node of a cluster
		defer conn.Close()
		limiter, err := window.New(conn, window.Config{Name: "api", Limits: []window.Limit{window.PerHour(1)}})
		if err != nil {
			panic(err)
		}
		d, err := limiter.Allow(context.Background(), "key 17")
		fmt.Println(server, d.Allowed, err)
	}
	// It prints:
	// server 1 true <nil>
	// server 2 false <nil>
}

// What do I do with each answer?
func ExampleLimiter_Allow() {
	conn := window.Dial("redis://127.0.0.1:6379")
	limiter, err := window.New(conn, window.Config{Name: "sign-up", Limits: []window.Limit{window.Every(time.Minute), window.PerDay(20)}})
	if err != nil {
		panic(err)
	}
	for range 2 {
		d, err := limiter.Allow(context.Background(), "198.51.100.7")
		switch {
		case errors.Is(err, window.ErrUncertain): // no reply: Redis may have counted the attempt
			fmt.Println("Redis is in trouble:", err)
		case err != nil: // nothing was counted: allow or deny, your choice
			fmt.Println("not decided:", err)
		case d.Allowed:
			fmt.Println("go ahead")
		default: // retrying after exactly RetryAfter succeeds, unless another caller used the slot
			fmt.Println("denied by", d.Tightest().Limit, "for", d.RetryAfter.Round(time.Minute))
		}
	}
	// It prints:
	// go ahead
	// denied by 1/1m for 1m0s
}

// Who decides while Redis is down? A fallback in the memory of this process.
func ExampleConfig_fallback() {
	cfg := window.Config{Name: "downloads", Limits: []window.Limit{window.PerHour(5)}}
	local, err := window.NewLocal(cfg)
	if err != nil {
		panic(err)
	}
	cfg.Fallback = local
	limiter, err := window.New(window.Dial("redis://127.0.0.1:1"), cfg) // no Redis listens here
	if err != nil {
		panic(err)
	}
	d, err := limiter.Allow(context.Background(), "198.51.100.7")
	fmt.Println(d.Allowed, d.Degraded, err)
	// Output: true true <nil>
}
