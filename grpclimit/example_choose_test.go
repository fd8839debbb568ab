package grpclimit_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/slidegate/slidegate/grpclimit"
	"github.com/slidegate/slidegate/window"
)

// How do callers get limits by their plan?
func ExampleConfig_choose() {
	free, err := window.NewLocal(window.Config{ // or window.New, to share limits through Redis
		Name: "plans", Limits: []window.Limit{window.PerHour(1)},
		// A clock that stands still, only for this example.
		Now: func() time.Time { return time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC) },
	})
	if err != nil {
		panic(err)
	}
	plans := map[string]grpclimit.Limiter{
		"free": free.WithPlan("free"), "staff": grpclimit.Unlimited, "closed": grpclimit.Blocked,
	}
	limit, err := grpclimit.New(grpclimit.Config{
		Choose: func(ctx context.Context, _ string) (grpclimit.Limiter, error) {
			plan := strings.Join(metadata.ValueFromIncomingContext(ctx, "plan"), ",") // which your authentication verified
			return plans[plan], nil
		},
		Key:    grpclimit.Metadata("account"),
		Outage: grpclimit.FailOpen,
	})
	if err != nil {
		panic(err)
	}

	handler := func(context.Context, any) (any, error) { return "done", nil }
	for _, plan := range []string{"free", "free", "staff", "closed"} {
		ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("account", "17", "plan", plan))
		fmt.Println(limit.UnaryServer(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/orders.Orders/Place"}, handler))
	}
	// Output:
	// done <nil>
	// <nil> rpc error: code = ResourceExhausted desc = too many calls; retry after 1h0m0s
	// done <nil>
	// <nil> rpc error: code = PermissionDenied desc = the call is not accepted, and waiting does not change that
}
