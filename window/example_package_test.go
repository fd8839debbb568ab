package window_test

import (
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/window"
)

// May this IP address try to log in now? If not, the same attempt is allowed after RetryAfter.
func Example() {
	conn := window.Dial("redis://127.0.0.1:6379") // connects in the background, so Redis can be down
	limiter, err := window.New(conn, window.Config{Name: "login", Limits: []window.Limit{window.Every(5 * time.Second), window.PerHour(5)}})
	if err != nil {
		panic(err)
	}
	if d, err := limiter.Allow(context.Background(), "198.51.100.7"); err != nil {
		fmt.Println("Redis does not answer, so the choice is yours:", err)
	} else if d.Allowed {
		fmt.Println("allowed")
	} else {
		fmt.Println("denied, as HTTP 429; retry after", d.RetryAfter)
	}
	// It prints: allowed
}
