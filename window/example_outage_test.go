package window_test

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// Who decides while Redis is down?
func ExampleConfig_fallback() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{redistest.Addr(nil)}, AlwaysPipelining: true})
	if err != nil {
		panic(err)
	}
	client.Close() // as if it were
	cfg := window.Config{Name: "login", Limits: []window.Limit{window.PerHour(5)}}
	if cfg.Fallback, err = window.NewLocal(cfg); err != nil {
		panic(err)
	}
	limiter, err := window.New(client, cfg)
	if err != nil {
		panic(err)
	}
	d, err := limiter.Allow(context.Background(), "198.51.100.7")
	fmt.Println(d.Allowed, d.Degraded, err)
	// Output: true true <nil>
}
