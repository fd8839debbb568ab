package grpclimit_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slidegate/slidegate/grpclimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// BenchmarkUnary measures the unary interceptors of a server and of a client, without a network.
func BenchmarkUnary(b *testing.B) {
	server := func(name string, i func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error)) {
		b.Run("server, "+name, func(b *testing.B) {
			info, handler := &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) { return "done", nil }
			b.ReportAllocs()
			for b.Loop() {
				if _, err := i(b.Context(), nil, info, handler); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	server("memory, 1 limit", interceptor(grpclimit.Config{Limiter: frozen("1000000000000/1h")}).UnaryServer)
	server("memory, a place", inFlight(grpclimit.InFlightConfig{Places: places()}).UnaryServer)
	server("Redis, a place", inFlight(grpclimit.InFlightConfig{Places: placesInRedis(b)}).UnaryServer)

	conn := must(grpc.NewClient("passthrough:///nowhere", grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer conn.Close()
	client := func(name string, cfg grpclimit.OutboundConfig) {
		b.Run("client, "+name, func(b *testing.B) {
			o := outbound(cfg)
			invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
			b.ReportAllocs()
			for b.Loop() {
				if err := o.UnaryClient(b.Context(), "/a/B", nil, nil, conn, invoke); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	inRedis := must(pace.New(window.On(redistest.Client(b)), pace.Config{Name: redistest.Key(b), Limits: parsed("1000000000000/1h"), Timeout: time.Second}))
	client("memory, a turn", grpclimit.OutboundConfig{Turns: turns("1000000000000/1h")})
	client("memory, a place", grpclimit.OutboundConfig{Places: places()})
	client("Redis, a turn", grpclimit.OutboundConfig{Turns: inRedis})
	client("Redis, a place", grpclimit.OutboundConfig{Places: placesInRedis(b)})
	client("Redis, both", grpclimit.OutboundConfig{Turns: inRedis, Places: placesInRedis(b)})
}
