package grpclimit_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/grpclimit"
	"github.com/slidegate/slidegate/window"
)

// How do I limit gRPC calls by API key, and leave health checks alone?
func ExampleMetadata() {
	limiter, err := window.NewLocal(window.Config{ // or window.New, to share limits through Redis
		Name: "calls", Limits: []window.Limit{window.PerHour(1)},
		// A clock that stands still, only for this example.
		Now: func() time.Time { return time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC) },
	})
	if err != nil {
		panic(err)
	}
	limit, err := grpclimit.New(grpclimit.Config{
		Limiter: limiter,
		Key:     grpclimit.Metadata("api-key"),
		Outage:  grpclimit.FailOpen,
		Skip:    grpclimit.HealthChecks,
	})
	if err != nil {
		panic(err)
	}
	verify := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if keys := metadata.ValueFromIncomingContext(ctx, "api-key"); len(keys) != 1 || keys[0] != "k17" {
			return nil, status.Error(codes.Unauthenticated, "unknown API key") // yours looks it up
		}
		return next(ctx, request)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(verify, limit.UnaryServer), // in this order
		grpc.StreamInterceptor(limit.StreamServer),
	)
	defer server.Stop() // your server registers its services and serves

	handler := func(context.Context, any) (any, error) { return "done", nil }
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("api-key", "k17"))
	for _, method := range []string{"/orders.Orders/Place", "/orders.Orders/Place", "/grpc.health.v1.Health/Check"} {
		fmt.Println(limit.UnaryServer(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, handler))
	}
	// Output:
	// done <nil>
	// <nil> rpc error: code = ResourceExhausted desc = too many calls; retry after 1h0m0s
	// done <nil>
}
