package window_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/window"
)

// May this IP address try to log in now? If not, the same attempt is allowed after RetryAfter.
func Example() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}, AlwaysPipelining: true})
	if err != nil {
		panic(err)
	}
	limiter, err := window.New(client, window.Config{Name: "login", Limits: []window.Limit{window.Every(5 * time.Second), window.PerHour(5)}})
	if err != nil {
		panic(err)
	}
	d, err := limiter.Allow(context.Background(), "198.51.100.7")
	fmt.Println(d.Allowed, d.RetryAfter, err) // if denied, answer HTTP 429: d.RetryAfter says when to retry
	// It prints: true 0s <nil>
}
