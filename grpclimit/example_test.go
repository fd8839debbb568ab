package grpclimit_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/slidegate/slidegate/grpclimit"
	"github.com/slidegate/slidegate/window"
)

// How do I limit all calls to a gRPC server by method?
func Example() {
	limiter, err := window.NewLocal(window.Config{ // or window.New, to share limits through Redis
		Name: "calls", Limits: []window.Limit{window.PerHour(1)},
		// A clock that stands still, only for this example.
		Now: func() time.Time { return time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC) },
	})
	if err != nil {
		panic(err)
	}
	limit, err := grpclimit.New(grpclimit.Config{Limiter: limiter, Key: grpclimit.Method, Outage: grpclimit.FailOpen})
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limit.UnaryServer), grpc.StreamInterceptor(limit.StreamServer))
	defer server.Stop() // your server registers its services and serves

	info := &grpc.UnaryServerInfo{FullMethod: "/orders.Orders/Place"}
	handler := func(context.Context, any) (any, error) { return "done", nil }
	for range 2 {
		fmt.Println(limit.UnaryServer(context.Background(), nil, info, handler))
	}
	// Output:
	// done <nil>
	// <nil> rpc error: code = ResourceExhausted desc = too many calls; retry after 1h0m0s
}
