package grpclimit_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/slidegate/slidegate/grpclimit"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// here is the event key of all calls in these tests.
const here = "here"

func onlyHere(context.Context, string) string { return here }

// inFlight returns an InFlight. Its Outage is FailClosed and it has the same key for all calls,
// unless cfg sets others.
func inFlight(cfg grpclimit.InFlightConfig) *grpclimit.InFlight {
	if cfg.Outage == "" {
		cfg.Outage = grpclimit.FailClosed
	}
	if cfg.Key == nil {
		cfg.Key = onlyHere
	}
	return must(grpclimit.NewInFlight(cfg))
}

// outbound returns an Outbound. Its Outage is FailClosed, it has the same event key for all calls,
// and it discards its log, unless cfg sets others.
func outbound(cfg grpclimit.OutboundConfig) *grpclimit.Outbound {
	if cfg.Outage == "" {
		cfg.Outage = grpclimit.FailClosed
	}
	if cfg.Event == nil {
		cfg.Event = onlyHere
	}
	cfg.Log = slog.New(slog.DiscardHandler)
	return must(grpclimit.NewOutbound(cfg))
}

func turns(texts ...string) *pace.Limiter {
	return must(pace.NewLocal(pace.Config{Name: "turns", Limits: parsed(texts...)}))
}

func places() *inflight.Limiter {
	return must(inflight.NewLocal(inflight.Config{Name: "places", Max: 1}))
}

// placesInRedis returns an inflight limiter of one place on Redis. If a caller leaves during its
// call, the place can be held until the end of the TTL, which is within the minute of awaitFree.
func placesInRedis(tb testing.TB) *inflight.Limiter {
	return must(inflight.New(window.On(redistest.Client(tb)), inflight.Config{Name: redistest.Key(tb), Max: 1, TTL: 30 * time.Second, Timeout: 10 * time.Second}))
}

// brief returns an inflight limiter of one place whose leases are lost after 100 ms.
func brief() *inflight.Limiter {
	return must(inflight.NewLocal(inflight.Config{
		Name: "places", Max: 1, TTL: 90 * time.Millisecond, Timeout: 30 * time.Millisecond, MaxHold: 100 * time.Millisecond,
	}))
}

func checkHeld(tb testing.TB, l *inflight.Limiter, want int64) {
	tb.Helper()
	if got := must(l.Inspect(context.Background(), here)).Used; got != want {
		tb.Errorf("%d places are in use, want %d", got, want)
	}
}

// awaitFree waits until the place is free, for at most a minute.
func awaitFree(tb testing.TB, l *inflight.Limiter) {
	tb.Helper()
	redistest.Eventually(tb, "the place is free", func() bool { return must(l.Inspect(context.Background(), here)).Used == 0 })
}

// service implements grpc's health service with two functions.
type service struct {
	healthpb.UnimplementedHealthServer
	unary  func(context.Context) error
	stream func(healthpb.Health_WatchServer) error
}

func (s *service) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return &healthpb.HealthCheckResponse{}, s.unary(ctx)
}

func (s *service) Watch(_ *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	return s.stream(stream)
}

// answering returns a service that calls f for each call. A stream first sends a message.
func answering(f func(context.Context) error) *service {
	return &service{unary: f, stream: func(s healthpb.Health_WatchServer) error {
		if err := s.Send(&healthpb.HealthCheckResponse{}); err != nil {
			return err
		}
		return f(s.Context())
	}}
}

// run serves a service on TCP. It returns the server, a connection to it, and a client.
func run(t *testing.T, of healthpb.HealthServer, server []grpc.ServerOption, client ...grpc.DialOption) (*grpc.Server, *grpc.ClientConn, healthpb.HealthClient) {
	t.Helper()
	s := grpc.NewServer(server...)
	healthpb.RegisterHealthServer(s, of)
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	conn := must(grpc.NewClient("passthrough:///"+listener.Addr().String(), append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(aMinute),
	}, client...)...))
	t.Cleanup(func() { _ = conn.Close() })
	return s, conn, healthpb.NewHealthClient(conn)
}

// openStream opens a stream, and reads its first message.
func openStream(ctx context.Context, t *testing.T, c healthpb.HealthClient) healthpb.Health_WatchClient {
	t.Helper()
	s, err := c.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	return s
}

// calling returns the options for a client with an Outbound.
func calling(o *grpclimit.Outbound) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithUnaryInterceptor(o.UnaryClient), grpc.WithStreamInterceptor(o.StreamClient)}
}
