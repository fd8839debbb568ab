// Package grpclimit provides rate limiting interceptors for gRPC servers, and paces the calls of
// clients. The interceptors use a distributed rate limiter from package window, which keeps a
// sliding window in Redis or Redis Cluster, or from package ar1.
//
//	conn := window.Dial("redis://127.0.0.1:6379")
//	limits := []window.Limit{window.PerHour(1000)}
//	limiter, err := window.New(conn, window.Config{Name: "grpc", Limits: limits})
//	if err != nil {
//		return err
//	}
//	limit, err := grpclimit.New(grpclimit.Config{
//		Limiter: limiter,
//		Key:     grpclimit.Peer, // by IP address
//		Outage:  grpclimit.FailOpen, // calls pass while Redis is down
//	})
//	if err != nil {
//		return err
//	}
//	server := grpc.NewServer(
//		grpc.UnaryInterceptor(limit.UnaryServer),
//		grpc.StreamInterceptor(limit.StreamServer),
//	)
//
// A denied call fails with the status ResourceExhausted. Its details are RetryInfo, which specifies
// when to retry, and QuotaFailure, which names the limits that denied the call. A stream counts
// once, when it opens. Its messages do not count.
//
// InFlight limits how many calls a server runs at the same time. Outbound paces the calls that a
// fleet sends to another service. For more, see docs/grpc.md.
package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/adapter"
	"github.com/slidegate/slidegate/window"
)

// Limiter decides whether to allow calls. *window.Limiter and *ar1.Limiter implement it.
type Limiter interface {
	// AllowN decides whether to allow a call that costs n units; n is at least 1. The event is the
	// key of the call. If the error matches window.ErrExceedsLimit, the call fails with
	// InvalidArgument. Any other error counts as an outage.
	AllowN(ctx context.Context, event string, n int64) (window.Decision, error)
}

// Outage selects what happens to calls while the limiter does not answer.
type Outage string

// The values of Outage. If the limiter has a Fallback, the Fallback decides, and Outage applies
// only if the Fallback fails too.
const (
	FailOpen   Outage = "open"   // calls pass, without any limit
	FailClosed Outage = "closed" // calls fail with the status Unavailable
)

// Config configures an Interceptor. Key and Outage are required, and so is either Limiter or
// Choose.
type Config struct {
	Limiter Limiter // decides whether to allow calls, and defines the limits
	Key     Key     // returns the event key of a call: calls with the same key share the limits
	Outage  Outage  // required, because either choice can do harm

	// Choose returns the Limiter for a call, such as the one for the caller's plan. It can return
	// Unlimited or Blocked. An error counts as an outage. So does a nil Limiter without an error, a
	// mistake that is logged.
	Choose func(ctx context.Context, method string) (Limiter, error)

	// Skip reports whether a call is exempt from the limits: see HealthChecks. If so, no other
	// function in Config is called. nil means that every call is limited.
	Skip func(ctx context.Context, method string) bool

	// Cost returns how many units a call costs. nil means 1 for each call. The request is nil for a
	// stream. A call that costs 0 is not limited. A call whose cost is negative, or above a limit's
	// Max, fails with InvalidArgument.
	Cost func(ctx context.Context, method string, request any) int64

	// Log receives a line when an outage, or the use of a Fallback, starts (with the cause) and
	// another when it ends. It also receives the first call without a key (with the reason), and
	// each error that concerns a single key, such as a value in Redis that Slidegate did not write.
	// nil means slog.Default().
	Log *slog.Logger
}

// Interceptor limits the rate of calls to a server. Create it with New, and install its methods as
// interceptors. It is safe for concurrent use.
type Interceptor struct {
	cfg     Config
	outages adapter.Outages
	keyless adapter.Keyless
}

// New returns an Interceptor. It returns an error if Key or Outage is missing, unless exactly one
// of Limiter and Choose is set, or if Outage is neither FailOpen nor FailClosed.
func New(cfg Config) (*Interceptor, error) {
	switch {
	case adapter.IsNil(cfg.Limiter) && cfg.Choose == nil:
		return nil, errors.New("slidegate: grpclimit has no Limiter; create one with window.New or ar1.New, or set Choose")
	case !adapter.IsNil(cfg.Limiter) && cfg.Choose != nil:
		return nil, errors.New("slidegate: grpclimit has Limiter and Choose; set only one of them")
	case cfg.Key == nil:
		return nil, errors.New("slidegate: grpclimit has no Key, which says who is limited; use grpclimit.Peer, Method or Metadata. The Key is also nil if Metadata got an empty name, or And a nil Key")
	case cfg.Outage != FailOpen && cfg.Outage != FailClosed:
		return nil, fmt.Errorf("slidegate: grpclimit has the Outage %q; choose %q to let calls pass while the limiter does not answer, or %q to refuse them", cfg.Outage, FailOpen, FailClosed)
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	return &Interceptor{cfg: cfg, outages: adapter.Outages{Outage: string(cfg.Outage), Request: "call", Log: cfg.Log}}, nil
}

// UnaryServer implements grpc.UnaryServerInterceptor. A denied call never reaches the handler.
func (i *Interceptor) UnaryServer(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := i.allow(ctx, info.FullMethod, request); err != nil {
		return nil, err
	}
	return next(ctx, request)
}

// StreamServer implements grpc.StreamServerInterceptor. It counts a stream once, when it opens.
func (i *Interceptor) StreamServer(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := i.allow(stream.Context(), info.FullMethod, nil); err != nil {
		return err
	}
	return next(server, stream)
}

// allow returns nil if the call is allowed. Otherwise it returns the status with which the call
// fails.
func (i *Interceptor) allow(ctx context.Context, method string, request any) error {
	if i.cfg.Skip != nil && i.cfg.Skip(ctx, method) {
		return nil
	}
	n := int64(1)
	if i.cfg.Cost != nil {
		n = i.cfg.Cost(ctx, method, request)
	}
	switch {
	case n < 0:
		return errNoCost
	case n == 0:
		return nil
	}
	key := i.cfg.Key(ctx, method)
	if key == "" {
		i.cfg.Key.logKeyless(ctx, &i.keyless, i.cfg.Log, method)
		return errNoKey
	}
	l, err := i.cfg.limiter(ctx, method)
	var d window.Decision
	if err == nil {
		d, err = l.AllowN(ctx, key, n)
	}
	switch {
	case errors.Is(err, window.ErrExceedsLimit):
		return errTooCostly
	case err != nil && ctx.Err() != nil: // the caller has gone, so this is not an outage
		return status.FromContextError(ctx.Err()).Err()
	case err != nil && i.outages.Fail(err):
		return nil
	case err != nil:
		return pushBack(ctx, errOutage)
	case !adapter.IsConstant(l):
		i.outages.Record(d.Degraded, d.Cause)
	}
	return pushBack(ctx, denial(d))
}
