// Command plans gives each customer the limits of a plan: go run ./examples/recipes/plans
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/slidegate/slidegate/window"
)

// plans holds the limits of each plan.
var plans = map[string][]window.Limit{
	"free": {window.PerMinute(3), window.PerDay(1_000)},
	"pro":  {window.PerMinute(100), window.PerDay(50_000)},
}

// allow decides on one request of a customer, under the limits of the customer's plan.
func allow(ctx context.Context, limiter *window.Limiter, plan, customer string) (window.Decision, error) {
	limits, err := limiter.With(plans[plan]...)
	if err != nil { // the plan does not exist, or has an invalid limit
		return window.Decision{}, fmt.Errorf("plan %q: %w", plan, err)
	}
	return limits.WithPlan(plan).Allow(ctx, customer)
}

func main() {
	limiter, err := window.NewLocal(window.Config{Name: "api", Limits: plans["free"]}) // or window.New
	if err != nil {
		log.Fatal(err)
	}
	for _, plan := range []string{"free", "free", "free", "free", "pro", "gold"} {
		d, err := allow(context.Background(), limiter, plan, "customer 17")
		if err != nil {
			fmt.Println(plan, "is no plan")
			continue
		}
		fmt.Println(plan, d.Allowed, d.Remaining, "left")
	}
	// It prints:
	// free true 2 left
	// free true 1 left
	// free true 0 left
	// free false 0 left
	// pro true 96 left
	// gold is no plan
}
