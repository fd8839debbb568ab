package goredisgate_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/goredisgate"
	"github.com/slidegate/slidegate/window"
)

// How do I limit requests with my go-redis client?
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}) // or redis.NewClusterClient, redis.NewFailoverClient
	defer client.Close()
	limiter, err := window.New(goredisgate.On(client), window.Config{Name: "go-redis", Limits: []window.Limit{window.PerHour(2)}})
	if err != nil {
		panic(err)
	}
	for range 3 {
		d, err := limiter.Allow(context.Background(), "198.51.100.7")
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	// It prints:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}
