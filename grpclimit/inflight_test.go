package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/grpclimit"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/windowtest"
)

// TestInFlightConfig checks which configurations NewInFlight rejects, and that the errors state the
// remedy. Package httplimit tests the errors that both have in common.
func TestInFlightConfig(t *testing.T) {
	for want, cfg := range map[string]grpclimit.InFlightConfig{
		"no Key":         {Places: places(), Outage: grpclimit.FailOpen},
		"a Wait of -1ns": {Places: places(), Key: onlyHere, Outage: grpclimit.FailOpen, Wait: -1},
	} {
		if _, err := grpclimit.NewInFlight(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
}

// heldBy returns the options for a server with an InFlight. When the InFlight has returned or
// panicked, an interceptor around it closes over. By then, the call's place must be free.
func heldBy(t *testing.T, l *inflight.Limiter, over chan<- struct{}) []grpc.ServerOption {
	i := inFlight(grpclimit.InFlightConfig{Places: l})
	check := func(err *error) {
		if r := recover(); r != nil {
			*err = fmt.Errorf("a panic: %v", r)
		}
		checkHeld(t, l, 0)
		close(over)
	}
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
			defer check(&err)
			return i.UnaryServer(ctx, request, info, next)
		}),
		grpc.StreamInterceptor(func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
			defer check(&err)
			return i.StreamServer(server, stream, info, next)
		}),
	}
}

// TestInFlightGivesBack checks that a call's place is free as soon as its handler has returned or
// panicked, and not before that, even if the client cancels the call or its connection is cut.
func TestInFlightGivesBack(t *testing.T) {
	returns, panics := func(context.Context) error { return nil }, func(context.Context) error { panic("a mistake") }
	for name, test := range map[string]struct {
		call call
		end  func(context.Context) error
	}{"unary": {unary, returns}, "unary, panics": {unary, panics}, "stream": {stream, returns}, "stream, panics": {stream, panics}} {
		t.Run(name, func(t *testing.T) {
			l, over := placesInRedis(t), make(chan struct{})
			_, _, c := run(t, answering(func(ctx context.Context) error {
				checkHeld(t, l, 1)
				return test.end(ctx)
			}), heldBy(t, l, over))
			_, _ = test.call(t.Context(), c)
			<-over
		})
	}
	for name, cut := range map[string]func(cancel func(), conn *grpc.ClientConn){
		"cancelled":           func(cancel func(), _ *grpc.ClientConn) { cancel() },
		"the connection ends": func(_ func(), conn *grpc.ClientConn) { _ = conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			l, over := placesInRedis(t), make(chan struct{})
			seen, end := make(chan struct{}), make(chan struct{})
			_, conn, c := run(t, answering(func(ctx context.Context) error {
				<-ctx.Done()
				close(seen)
				<-end
				return ctx.Err()
			}), heldBy(t, l, over))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_ = openStream(ctx, t, c)
			cut(cancel, conn)
			<-seen
			checkHeld(t, l, 1)
			close(end)
			<-over
		})
	}
}

// TestInFlightLost checks that a call's context is canceled with the cause ErrLost if the lease is
// lost.
func TestInFlightLost(t *testing.T) {
	for name, call := range map[string]call{"unary": unary, "stream": stream} {
		t.Run(name, func(t *testing.T) {
			i, cause := inFlight(grpclimit.InFlightConfig{Places: brief()}), make(chan error, 1)
			_, _, c := run(t, &service{
				unary: func(ctx context.Context) error { <-ctx.Done(); cause <- context.Cause(ctx); return ctx.Err() },
				stream: func(s healthpb.Health_WatchServer) error {
					<-s.Context().Done()
					cause <- context.Cause(s.Context())
					return s.Context().Err()
				},
			}, []grpc.ServerOption{grpc.UnaryInterceptor(i.UnaryServer), grpc.StreamInterceptor(i.StreamServer)})
			_, _ = call(t.Context(), c)
			if err := <-cause; !errors.Is(err, inflight.ErrLost) {
				t.Error(err)
			}
		})
	}
}

// TestInFlightDenies checks the status of a call that gets no place, and that the trailer makes
// clients with a retry policy wait as long as the status specifies.
func TestInFlightDenies(t *testing.T) {
	for name, call := range map[string]call{"unary": unary, "stream": stream} {
		t.Run(name, func(t *testing.T) {
			l := places()
			_ = must(l.Acquire(t.Context(), here))
			i := inFlight(grpclimit.InFlightConfig{Places: l})
			c := serve(t, []grpc.ServerOption{grpc.UnaryInterceptor(i.UnaryServer), grpc.StreamInterceptor(i.StreamServer)})
			trailer, err := call(t.Context(), c)
			after, _ := details(err)
			if status.Code(err) != codes.ResourceExhausted || after != time.Second || strings.Join(trailer.Get("grpc-retry-pushback-ms"), " ") != "1000" {
				t.Errorf("%v, %v, %v", err, after, trailer)
			}
		})
	}
}

// TestInFlightRefuses checks the status of calls for which the limiter returns an error, and that
// an outage is logged once.
func TestInFlightRefuses(t *testing.T) {
	l := must(inflight.New(windowtest.Down(), inflight.Config{Name: "places", Max: 1}))
	gone, leave := context.WithCancel(t.Context())
	leave()
	const outage = `level=ERROR msg="slidegate: the limiter cannot decide" outage=%s explained=true` + "\n"
	for name, test := range map[string]struct {
		ctx     context.Context
		outage  grpclimit.Outage
		key     grpclimit.Key
		want    codes.Code
		wantLog string
	}{
		"open":       {t.Context(), grpclimit.FailOpen, onlyHere, codes.OK, fmt.Sprintf(outage, "open")},
		"closed":     {t.Context(), grpclimit.FailClosed, onlyHere, codes.Unavailable, fmt.Sprintf(outage, "closed")},
		"the client": {gone, grpclimit.FailOpen, onlyHere, codes.Canceled, ""},
		"no key": {
			t.Context(), grpclimit.FailOpen, grpclimit.Metadata("api-key"), codes.InvalidArgument,
			`level=WARN msg="slidegate: calls without a key are refused; only the first is logged" reason="the metadata value api-key is missing or empty"` + "\n",
		},
	} {
		var log logRecorder
		i := inFlight(grpclimit.InFlightConfig{Places: l, Key: test.key, Outage: test.outage, Log: log.logger()})
		for range 2 {
			_, err := i.UnaryServer(test.ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return "done", nil })
			if status.Code(err) != test.want {
				t.Errorf("%s: %v", name, err)
			}
		}
		log.check(t, test.wantLog)
	}
}
