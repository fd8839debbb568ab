package grpclimit_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/slidegate/slidegate/grpclimit"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// TestOutboundTakesTurns checks that a call or a stream takes one of its event's turns, and holds a
// place while it runs. The event is the connection's target, unless Event returns another.
func TestOutboundTakesTurns(t *testing.T) {
	for name, call := range map[string]call{"unary": unary, "stream": stream} {
		t.Run(name, func(t *testing.T) {
			l, p := turns("1/1ms", "10/1h"), placesInRedis(t)
			o := must(grpclimit.NewOutbound(grpclimit.OutboundConfig{Turns: l, Outage: grpclimit.FailClosed}))
			held := outbound(grpclimit.OutboundConfig{Places: p})
			_, conn, c := run(t, &service{
				unary: func(context.Context) error { checkHeld(t, p, 1); return nil },
				stream: func(s healthpb.Health_WatchServer) error {
					checkHeld(t, p, 1)
					return s.Send(&healthpb.HealthCheckResponse{})
				},
			}, nil,
				grpc.WithChainUnaryInterceptor(held.UnaryClient, o.UnaryClient), grpc.WithChainStreamInterceptor(held.StreamClient, o.StreamClient))
			if _, err := call(t.Context(), c); err != nil {
				t.Error(err)
			}
			if s := must(l.Inspect(t.Context(), conn.Target())); s.Limits[1].Used != 1 {
				t.Errorf("%d turns of %s", s.Limits[1].Used, conn.Target())
			}
			awaitFree(t, p)
		})
	}
}

// TestOutboundPauses checks how long a status pauses turns.
func TestOutboundPauses(t *testing.T) {
	refusal := func(code codes.Code, after ...time.Duration) error {
		s := status.New(code, "no")
		for _, d := range after {
			s = must(s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)}))
		}
		return s.Err()
	}
	for name, test := range map[string]struct {
		answer error
		want   time.Duration
	}{
		"ResourceExhausted": {refusal(codes.ResourceExhausted, 7*time.Second), 7 * time.Second},
		"Unavailable":       {refusal(codes.Unavailable, 7*time.Second), 7 * time.Second},
		"too long":          {refusal(codes.ResourceExhausted, 24*time.Hour), 2 * time.Minute},
		"negative":          {refusal(codes.ResourceExhausted, -time.Second), 0},
		"no RetryInfo":      {refusal(codes.ResourceExhausted), 0},
		"another code":      {refusal(codes.Internal, 7*time.Second), 0},
		"fine":              {nil, 0},
	} {
		for kind, call := range map[string]call{"unary": unary, "stream": func(ctx context.Context, c healthpb.HealthClient) (_ metadata.MD, err error) {
			s, err := c.Watch(ctx, &healthpb.HealthCheckRequest{})
			for err == nil {
				_, err = s.Recv()
			}
			return nil, err
		}} {
			t.Run(name+", "+kind, func(t *testing.T) {
				now := time.Now()
				l := must(pace.NewLocal(pace.Config{Name: "turns", Limits: parsed("1/1ms"), Now: func() time.Time { return now }}))
				p := places()
				o := outbound(grpclimit.OutboundConfig{Turns: l, Places: p, MaxPause: 2 * time.Minute})
				_, _, c := run(t, answering(func(context.Context) error { return test.answer }), nil, calling(o)...)
				if _, err := call(t.Context(), c); test.answer != nil && status.Code(err) != status.Code(test.answer) {
					t.Error(err)
				}
				awaitFree(t, p) // turns are paused before the place becomes free
				s := must(l.Inspect(t.Context(), here))
				if got := max(0, s.PausedUntil.Sub(s.At)); got != test.want {
					t.Errorf("a pause of %v, want %v", got, test.want)
				}
			})
		}
	}
}

// TestOutboundStreamEnds checks that a stream holds its place until it has ended, however it ends.
func TestOutboundStreamEnds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, stream healthpb.Health_WatchClient, finish, cancel func(), s *grpc.Server, conn *grpc.ClientConn){
		"the server ends it": func(t *testing.T, stream healthpb.Health_WatchClient, finish, _ func(), _ *grpc.Server, _ *grpc.ClientConn) {
			finish()
			if _, err := stream.Recv(); err == nil {
				t.Error("it goes on")
			}
		},
		"the caller cancels it": func(_ *testing.T, _ healthpb.Health_WatchClient, _, cancel func(), _ *grpc.Server, _ *grpc.ClientConn) {
			cancel()
		},
		"the caller closes": func(_ *testing.T, _ healthpb.Health_WatchClient, _, _ func(), _ *grpc.Server, conn *grpc.ClientConn) {
			_ = conn.Close()
		},
		"the connection is cut, read": func(_ *testing.T, stream healthpb.Health_WatchClient, _, _ func(), s *grpc.Server, _ *grpc.ClientConn) {
			go s.Stop()
			_, _ = stream.Recv()
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, finished := placesInRedis(t), make(chan struct{})
			s, conn, c := run(t, answering(func(ctx context.Context) error {
				select {
				case <-ctx.Done():
				case <-finished:
				}
				return nil
			}), nil, calling(outbound(grpclimit.OutboundConfig{Places: p}))...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream := openStream(ctx, t, c)
			checkHeld(t, p, 1)
			end(t, stream, func() { close(finished) }, cancel, s, conn)
			awaitFree(t, p)
		})
	}
}

// TestOutboundFails checks the status of a call that is not sent, and that its error wraps the
// limiter's. In an outage, the call is sent with FailOpen.
func TestOutboundFails(t *testing.T) {
	down := redistest.Start(t)
	lost := must(pace.New(window.On(down.Client(t)), pace.Config{Name: "turns", Limits: parsed("1/1h")}))
	noPlaces := must(inflight.New(window.On(down.Client(t)), inflight.Config{Name: "places", Max: 1}))
	var timesOut atomic.Bool
	slow := must(pace.New(window.On(down.NewClient(t, func(o *rueidis.ClientOption) {
		o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if timesOut.Load() {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
			}
			return d.DialContext(ctx, "tcp", addr)
		}
	})), pace.Config{Name: "turns", Limits: parsed("1/1h")}))
	down.Kill(t)
	timesOut.Store(true)
	busy, p := turns("1/1h"), places()
	_ = busy.Wait(t.Context(), here)
	gone, leave := context.WithCancel(t.Context())
	leave()
	short, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		cfg  grpclimit.OutboundConfig
		code codes.Code
		want error
	}{
		"the caller has left":  {gone, grpclimit.OutboundConfig{Turns: turns("1/1ms"), Places: p}, codes.Canceled, context.Canceled},
		"the turn is too late": {short, grpclimit.OutboundConfig{Turns: busy, Places: p, Outage: grpclimit.FailOpen}, codes.DeadlineExceeded, context.DeadlineExceeded},
		"no event":             {t.Context(), grpclimit.OutboundConfig{Turns: busy, Event: func(context.Context, string) string { return "" }}, codes.InvalidArgument, pace.ErrEmptyEvent},
		"an outage":            {t.Context(), grpclimit.OutboundConfig{Turns: lost, Places: p}, codes.Unavailable, pace.ErrOutage},
		"a timeout":            {t.Context(), grpclimit.OutboundConfig{Turns: slow, Places: p}, codes.Unavailable, pace.ErrOutage},
		"an outage, open":      {t.Context(), grpclimit.OutboundConfig{Turns: lost, Places: noPlaces, Outage: grpclimit.FailOpen}, codes.OK, nil},
	} {
		for kind, call := range map[string]call{"unary": unary, "stream": stream} {
			t.Run(name+", "+kind, func(t *testing.T) {
				_, err := call(test.ctx, serve(t, nil, calling(outbound(test.cfg))...))
				if status.Code(err) != test.code || !errors.Is(err, test.want) {
					t.Error(err)
				}
				checkHeld(t, p, 0)
			})
		}
	}
}

// TestOutboundInside checks that a stream that an inner interceptor reopens is not canceled. If an
// inner interceptor returns a stream of its own, the place is released when the context is done.
func TestOutboundInside(t *testing.T) {
	for name, inside := range map[string]grpc.StreamClientInterceptor{
		"opens again": func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			first, err := next(ctx, desc, conn, method, opts...)
			if err != nil {
				return nil, err
			}
			for err = errors.Join(first.SendMsg(&healthpb.HealthCheckRequest{}), first.CloseSend()); err == nil; err = first.RecvMsg(&healthpb.HealthCheckResponse{}) {
			}
			return next(ctx, desc, conn, method, opts...)
		},
		"answers itself": func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
			return answered{ctx: ctx}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := places()
			_, _, c := run(t, answering(func(context.Context) error { return nil }), nil, grpc.WithChainStreamInterceptor(outbound(grpclimit.OutboundConfig{Places: p}).StreamClient, inside))
			ctx, cancel := context.WithCancel(t.Context())
			s := openStream(ctx, t, c)
			if err := s.Context().Err(); err != nil {
				t.Error(err)
			}
			cancel()
			awaitFree(t, p)
		})
	}
}

// answered is a stream that an inner interceptor returns.
type answered struct {
	grpc.ClientStream
	ctx context.Context
}

func (a answered) Context() context.Context { return a.ctx }
func (answered) SendMsg(any) error          { return nil }
func (answered) CloseSend() error           { return nil }
func (answered) RecvMsg(any) error          { return nil }

// TestPanics checks that the place is released if a Streamer panics, and that an Outbound or
// InFlight not created with its constructor panics with a clear message.
func TestPanics(t *testing.T) {
	p := places()
	noStream := func(o *grpclimit.Outbound) {
		_, _ = o.StreamClient(t.Context(), &grpc.StreamDesc{}, nil, "/m", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			panic("a mistake")
		})
	}
	for want, call := range map[string]func(){
		"a mistake":                            func() { noStream(outbound(grpclimit.OutboundConfig{Places: p})) },
		"create it with grpclimit.NewOutbound": func() { noStream(new(grpclimit.Outbound)) },
		"create it with grpclimit.NewInFlight": func() { _, _ = new(grpclimit.InFlight).UnaryServer(t.Context(), nil, &grpc.UnaryServerInfo{}, nil) },
	} {
		func() {
			defer func() {
				if value := fmt.Sprint(recover()); !strings.Contains(value, want) {
					t.Errorf("%s, not %s", value, want)
				}
			}()
			call()
		}()
	}
	checkHeld(t, p, 0)
}

// TestOutboundLost checks that calls and streams end if the lease is lost.
func TestOutboundLost(t *testing.T) {
	_, _, c := run(t, answering(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil, calling(outbound(grpclimit.OutboundConfig{Places: brief()}))...)
	if _, err := unary(t.Context(), c); status.Code(err) != codes.Canceled || !errors.Is(err, inflight.ErrLost) {
		t.Error(err)
	}
	s, err := c.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	for err == nil { // the lease can be lost before the first message
		_, err = s.Recv()
	}
	if status.Code(err) != codes.Canceled || s != nil && !errors.Is(context.Cause(s.Context()), inflight.ErrLost) {
		t.Error(err)
	}
}
