// Command priority lets users go ahead of background work: go run ./examples/recipes/priority
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/slidegate/slidegate/window"
)

func main() {
	users, err := window.NewLocal(window.Config{Name: "api", Limits: []window.Limit{window.PerMinute(5)}}) // or window.New
	if err != nil {
		log.Fatal(err)
	}
	background, err := users.With(window.PerMinute(3)) // the same minute, so the same count
	if err != nil {
		log.Fatal(err)
	}
	for _, of := range []*window.Limiter{background, background, background, background, users, users, users} {
		d, err := of.Allow(context.Background(), "customer 17")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Usage[0].Used, "used")
	}
	// It prints:
	// true 1 used
	// true 2 used
	// true 3 used
	// false 3 used
	// true 4 used
	// true 5 used
	// false 5 used
}
