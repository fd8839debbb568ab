package window_test

import (
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/window"
)

// May this IP address try to log in now? If not, the same attempt is allowed after RetryAfter.
func Example() {
	limits := []window.Limit{window.Every(5 * time.Second), window.PerHour(5)}
	limiter, err := window.New(window.Dial("redis://127.0.0.1:6379"), window.Config{Name: "login", Limits: limits})
	if err != nil {
		panic(err)
	}
	if d, err := limiter.Allow(context.Background(), "198.51.100.7"); err != nil {
		fmt.Println("not decided, so the choice is yours:", err)
	} else if d.Allowed {
		fmt.Println("allowed")
	} else {
		fmt.Println("denied, as HTTP 429; retry after", d.RetryAfter)
	}
	// It prints: allowed
}
