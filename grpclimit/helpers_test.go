package grpclimit_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/grpclimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var (
	_ grpclimit.Limiter = (*window.Limiter)(nil)
	_ grpclimit.Limiter = (*ar1.Limiter)(nil)
)

func must[T any](v T, err error) T { return redistest.Must(v, err) }

func parsed(texts ...string) (all []window.Limit) {
	for _, text := range texts {
		all = append(all, must(window.ParseLimit(text)))
	}
	return all
}

// noon is the time of limiters whose clock stands still, so that waits are exact.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// local returns a limiter in memory with the given clock.
func local(now *time.Time, limits ...string) *window.Limiter {
	return must(window.NewLocal(window.Config{Name: "local", Limits: parsed(limits...), Now: func() time.Time { return *now }}))
}

// frozen returns a limiter in memory whose clock stands still.
func frozen(limits ...string) *window.Limiter { return local(&noon, limits...) }

// used returns how many units event has used under its first limit.
func used(t *testing.T, l *window.Limiter, event string) int64 {
	return must(l.Inspect(t.Context(), event)).Limits[0].Used
}

// interceptor returns an Interceptor. Its Outage is FailClosed, it has the same key for all calls,
// and it discards its log, unless cfg sets others.
func interceptor(cfg grpclimit.Config) *grpclimit.Interceptor {
	if cfg.Outage == "" {
		cfg.Outage = grpclimit.FailClosed
	}
	if cfg.Key == nil {
		cfg.Key = func(context.Context, string) string { return "everybody" }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return must(grpclimit.New(cfg))
}

// aMinute is a service config that limits how long a call may take, so that a hang fails where it
// occurs. A test that has its own service config replaces it.
const aMinute = `{"methodConfig": [{"name": [{}], "timeout": "60s"}]}`

// serve starts grpc's health service on TCP, and returns a client for it.
func serve(t *testing.T, server []grpc.ServerOption, client ...grpc.DialOption) healthpb.HealthClient {
	t.Helper()
	_, _, c := run(t, health.NewServer(), server, client...)
	return c
}

// serverSide starts a server with an interceptor, and returns a client for it.
func serverSide(t *testing.T, i *grpclimit.Interceptor) healthpb.HealthClient {
	return serve(t, limitedBy(i))
}

func limitedBy(i *grpclimit.Interceptor) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.UnaryInterceptor(i.UnaryServer), grpc.StreamInterceptor(i.StreamServer)}
}

// call calls the service once, and returns the trailer and the error.
type call func(context.Context, healthpb.HealthClient) (metadata.MD, error)

func unary(ctx context.Context, c healthpb.HealthClient) (trailer metadata.MD, err error) {
	_, err = c.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Trailer(&trailer))
	return trailer, err
}

func stream(ctx context.Context, c healthpb.HealthClient) (metadata.MD, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return nil, err
	}
	if _, err = s.Recv(); err != nil {
		return s.Trailer(), err
	}
	return nil, nil
}

// eachKind runs a test for unary calls and for streams.
func eachKind(t *testing.T, test func(t *testing.T, call call)) {
	for name, call := range map[string]call{"unary": unary, "stream": stream} {
		t.Run(name, func(t *testing.T) { test(t, call) })
	}
}

// details returns the RetryInfo of a status, and the limits in its QuotaFailure.
func details(err error) (after time.Duration, limits []string) {
	for _, detail := range status.Convert(err).Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			after = d.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			for _, v := range d.GetViolations() {
				limits = append(limits, v.GetQuotaId())
			}
		}
	}
	return after, limits
}

// logRecorder records the level, the message and the outage of each line, and whether the line
// contains a reason.
type logRecorder struct{ lines strings.Builder }

func (r *logRecorder) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(&r.lines, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch err, isError := a.Value.Any().(error); {
		case isError && window.ReasonOf(err) != "":
			return slog.Bool("explained", true)
		case isError, a.Key == slog.TimeKey, a.Key == "limiter":
			return slog.Attr{}
		}
		return a
	}}))
}

func (r *logRecorder) check(t *testing.T, want string) {
	t.Helper()
	if got := r.lines.String(); got != want {
		t.Errorf("the log has\n%snot\n%s", got, want)
	}
}
