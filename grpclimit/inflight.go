package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/journal"
	"github.com/slidegate/slidegate/internal/place"
	"github.com/slidegate/slidegate/window"
)

// InFlightConfig configures an InFlight. Places, Key and Outage are required.
type InFlightConfig struct {
	// Places says how many calls of a key may run at once, on all servers. Its MaxHold must be as long
	// as calls may last.
	Places *inflight.Limiter

	Key    Key    // returns the event key of a call: calls with the same key share the places
	Outage Outage // has no default, because either choice can do harm

	// Wait is how long a call waits for a place before it fails. 0 fails at once.
	Wait time.Duration

	// Log is as in Config.
	Log *slog.Logger
}

// InFlight limits how many calls of a server run at the same time. Make it with NewInFlight. It is safe
// for concurrent use.
//
// The context of a call also ends with the cause inflight.ErrLost, if the lease of the place is lost:
// because Redis did not answer, or after MaxHold. A call without a place fails with ResourceExhausted.
// Its RetryInfo is then a hint: about as long as calls of this process held a place of late, from a
// second to a minute.
type InFlight struct {
	cfg     InFlightConfig
	gate    *place.Gate
	outages journal.Journal
	keyless sync.Once // logs the first call without a key
}

// NewInFlight returns an InFlight. It returns an error if Places, Key or Outage is missing, if Wait is
// negative, or if Outage is neither FailOpen nor FailClosed.
func NewInFlight(cfg InFlightConfig) (*InFlight, error) {
	gate, err := place.NewGate("grpclimit", cfg.Places, cfg.Wait)
	switch {
	case err != nil:
		return nil, err
	case cfg.Key == nil:
		return nil, errors.New("slidegate: grpclimit.InFlight has no Key, which names whom to limit; use grpclimit.Peer, Method or Metadata")
	case cfg.Outage != FailOpen && cfg.Outage != FailClosed:
		return nil, fmt.Errorf("slidegate: grpclimit.InFlight has the Outage %q; choose %q to let calls pass while the limiter gives no answer, or %q to refuse them", cfg.Outage, FailOpen, FailClosed)
	}
	cfg.Log = journal.Log(cfg.Log, cfg.Places)
	return &InFlight{cfg: cfg, gate: gate}, nil
}

// UnaryServer implements grpc.UnaryServerInterceptor. The call holds a place until its handler returns or
// panics, even if the client has gone.
func (i *InFlight) UnaryServer(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	held, err := i.enter(ctx, info.FullMethod)
	if err != nil {
		pushBack(ctx, err)
		return nil, err
	}
	defer held.Release()
	return next(held.Context, request)
}

// StreamServer implements grpc.StreamServerInterceptor. The stream holds a place until its handler returns
// or panics, even if the client has gone.
func (i *InFlight) StreamServer(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	held, err := i.enter(stream.Context(), info.FullMethod)
	if err != nil {
		pushBack(stream.Context(), err)
		return err
	}
	defer held.Release()
	return next(server, &heldStream{stream, held.Context})
}

// heldStream is a stream that holds a place.
type heldStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the context of the stream, which also ends if the lease is lost.
func (s *heldStream) Context() context.Context { return s.ctx }

// enter takes a place for a call. Otherwise it returns the status of the refusal.
func (i *InFlight) enter(ctx context.Context, method string) (*place.Held, error) {
	key := i.cfg.Key(ctx, method)
	if key == "" {
		i.keyless.Do(func() {
			i.cfg.Log.Warn("slidegate: calls without a key are refused; only the first is logged", "reason", i.cfg.Key.explain(ctx, method).String())
		})
		return nil, errNoKey
	}
	held, err := i.gate.Enter(ctx, key)
	switch {
	case err != nil:
		return i.undecided(ctx, err)
	case held == nil:
		err = withDetails(codes.ResourceExhausted, "too many calls are running at the same time", retryInfo(i.gate.RetryAfter()))
	}
	i.outages.Note(i.cfg.Log, string(i.cfg.Outage), false, nil)
	return held, err
}

// undecided admits or refuses a call that got no answer of the limiter.
func (i *InFlight) undecided(ctx context.Context, err error) (*place.Held, error) {
	switch {
	case ctx.Err() != nil: // the caller is gone, which is no sign of an outage
		return nil, status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, window.ErrOutage), errors.Is(err, window.ErrUncertain):
		i.outages.Note(i.cfg.Log, string(i.cfg.Outage), false, err)
	default:
		i.cfg.Log.Error("slidegate: the limiter cannot decide about a call", "outage", i.cfg.Outage, "err", err)
	}
	if i.cfg.Outage == FailOpen {
		return place.Hold(ctx, nil), nil
	}
	return nil, errOutage
}
