package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/adapter"
)

// InFlightConfig configures an InFlight. Places, Key and Outage are required.
type InFlightConfig struct {
	// Places limits how many calls with the same key may run at once, across all servers. Its MaxHold
	// must be at least as long as the longest call.
	Places *inflight.Limiter

	Key    Key    // returns the event key of a call: calls with the same key share the places
	Outage Outage // required, because either choice can do harm

	// Wait is the longest that a call waits for a place before it fails. 0 means that calls do not
	// wait.
	Wait time.Duration

	// Log receives a line when an outage starts or ends, with the cause, and a line for the first
	// call without a key. It states why a Fallback decides only if Wait is 0. nil means
	// slog.Default().
	Log *slog.Logger
}

// InFlight limits how many calls a server runs at the same time. Create it with NewInFlight. It is
// safe for concurrent use.
//
// If the lease of a call's place is lost, the call's context is canceled with the cause
// inflight.ErrLost. A lease is lost after MaxHold or, unless Outage is FailOpen, if Redis does not
// answer. A call that gets no place fails with ResourceExhausted. Its RetryInfo is a hint, from a
// second to a minute: about as long as this process's calls have recently held a place.
type InFlight struct {
	cfg     InFlightConfig
	inbound *adapter.Inbound
	keyless adapter.Keyless
}

// NewInFlight returns an InFlight. It returns an error if Places, Key or Outage is missing, if Wait
// is negative, or if Outage is neither FailOpen nor FailClosed.
func NewInFlight(cfg InFlightConfig) (*InFlight, error) {
	inbound, err := adapter.NewInbound("grpclimit.InFlight", cfg.Places, cfg.Wait, string(cfg.Outage), cfg.Log)
	switch {
	case err != nil:
		return nil, err
	case cfg.Key == nil:
		return nil, errors.New("slidegate: grpclimit.InFlight has no Key, which says who is limited; use grpclimit.Peer, Method or Metadata")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	return &InFlight{cfg: cfg, inbound: inbound}, nil
}

// UnaryServer implements grpc.UnaryServerInterceptor. The call holds a place until its handler
// returns or panics, even if the client has gone.
func (i *InFlight) UnaryServer(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	place, err := i.enter(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer place.Release()
	return next(place.Context, request)
}

// StreamServer implements grpc.StreamServerInterceptor. The stream holds a place until its handler
// returns or panics, even if the client has gone.
func (i *InFlight) StreamServer(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	place, err := i.enter(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	defer place.Release()
	return next(server, &heldStream{stream, place.Context})
}

// heldStream is a stream whose call holds a place.
type heldStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the stream's context, which is also canceled if the lease is lost.
func (s *heldStream) Context() context.Context { return s.ctx }

// enter takes a place for a call. If it gets none, it returns the status with which the call fails.
func (i *InFlight) enter(ctx context.Context, method string) (*adapter.Place, error) {
	if i == nil || i.inbound == nil {
		panic("slidegate: this InFlight is nil or zero; create it with grpclimit.NewInFlight")
	}
	key := i.cfg.Key(ctx, method)
	if key == "" {
		i.cfg.Key.logKeyless(ctx, &i.keyless, i.cfg.Log, method)
		return nil, errNoKey
	}
	place, err := i.inbound.Enter(ctx, key)
	switch {
	case err == nil && place == nil:
		err = withDetails(codes.ResourceExhausted, "too many calls are running at the same time", retryInfo(i.inbound.RetryAfter()))
	case err != nil && ctx.Err() != nil:
		err = status.FromContextError(ctx.Err()).Err()
	case err != nil:
		err = errOutage
	}
	return place, pushBack(ctx, err)
}
