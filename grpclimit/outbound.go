package grpclimit

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/adapter"
	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// OutboundConfig configures an Outbound. Outage is required, and so is at least one of Turns and
// Places.
type OutboundConfig struct {
	// Turns schedules when calls may be sent. Each call takes a turn and waits for it.
	Turns *pace.Limiter

	// Places limits how many calls may run at once. A call waits for a place, then for its turn,
	// and releases the place when it ends. A stream ends when its caller has received the end of
	// the stream, or when its context is done. The wait for the turn counts toward MaxHold.
	Places *inflight.Limiter

	// Event returns the event key of a call, for both limiters. It must not return "". nil means
	// the connection's target, such as "dns:///api.example.com".
	Event Key

	// MaxPause is the longest pause that a status can cause, at most a day. 0 means a minute.
	MaxPause time.Duration

	// Outage selects what happens while a limiter does not answer: FailOpen sends the call anyway,
	// and with FailClosed the call fails with Unavailable. It has no default, because either choice
	// can do harm. If the limiter has a Fallback, the Fallback decides, and Outage applies only if
	// the Fallback fails too.
	Outage Outage

	// Log receives a line when an outage, or the use of the Fallback of Places, starts or ends,
	// with the cause. The use of the Fallback of Turns is not logged. nil means slog.Default().
	Log *slog.Logger
}

// Outbound makes all calls that a fleet sends to another service share turns and places. Create it
// with NewOutbound. It is safe for concurrent use.
//
// Chain Outbound last, closest to grpc. If an interceptor chained after it reopens a stream, the
// new stream holds no place. If such an interceptor returns a stream of its own, the place is held
// until the caller has received the end of that stream, or its context is done.
//
// The status ResourceExhausted or Unavailable, if it has RetryInfo, pauses the turns of the call's
// event in all processes. Outbound never repeats a call. Each retry by an interceptor chained
// before it takes a turn of its own. Retries under grpc's retry policy take no turns, because
// interceptors do not see them.
type Outbound struct {
	cfg      OutboundConfig
	outbound *adapter.Outbound
}

// NewOutbound returns an Outbound. It returns an error if neither Turns nor Places is set, if
// MaxPause is negative or more than a day, or if Outage is neither FailOpen nor FailClosed.
func NewOutbound(cfg OutboundConfig) (*Outbound, error) {
	outbound, err := adapter.NewOutbound("grpclimit.Outbound", adapter.OutboundConfig{
		Turns: cfg.Turns, Places: cfg.Places, MaxPause: cfg.MaxPause, Outage: string(cfg.Outage), Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	return &Outbound{cfg, outbound}, nil
}

// UnaryClient implements grpc.UnaryClientInterceptor. A call that gets no place or turn fails: with
// DeadlineExceeded if its turn would come after its deadline, with the status of its context if
// that is done, and in an outage, under FailClosed, with Unavailable. If the lease of its place is
// lost, the call fails with Canceled, and its error matches inflight.ErrLost. With FailOpen, it
// continues if the lease was lost because Redis did not answer.
func (o *Outbound) UnaryClient(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	event := o.event(ctx, method, conn)
	place, err := o.outbound.Begin(ctx, event)
	if err != nil {
		return unsent(ctx, err)
	}
	defer place.Release()
	err = next(place.Context, method, request, reply, conn, opts...)
	o.outbound.Pause(ctx, event, waitIn(err))
	return place.Explain(err)
}

// StreamClient implements grpc.StreamClientInterceptor. It does the same as UnaryClient for a
// stream, which takes one turn when it opens. Receive messages until there is an error, or cancel
// the context: until then, the stream holds its place even if the server has ended it. If the lease
// is lost, the stream fails with Canceled, and inflight.ErrLost is the cause in its context.
func (o *Outbound) StreamClient(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	event := o.event(ctx, method, conn)
	place, err := o.outbound.Begin(ctx, event)
	if err != nil {
		return nil, unsent(ctx, err)
	}
	opened := false
	defer func() {
		if !opened { // grpc may not have called OnFinish
			place.Release()
		}
	}()
	s := &outgoing{place: place, once: !desc.ServerStreams}
	opts = append(opts[:len(opts):len(opts)], grpc.OnFinish(func(err error) {
		s.finished.Store(true)
		go func() { // in the background, because grpc holds a lock of the stream here
			o.outbound.Pause(ctx, event, waitIn(err))
			place.GiveBack() // does not cancel the context, because an inner interceptor may reopen the stream
		}()
	}))
	if s.ClientStream, err = next(place.Context, desc, conn, method, opts...); err != nil {
		return nil, place.Explain(err)
	}
	opened = true
	s.stop = context.AfterFunc(ctx, place.Release)
	return s, nil
}

// outgoing is a stream that holds a place.
type outgoing struct {
	grpc.ClientStream
	place    *adapter.Place
	once     bool        // the server sends a single message
	finished atomic.Bool // grpc has called OnFinish, which releases the place
	stop     func() bool // keeps the end of the caller's context from releasing the place
}

// RecvMsg receives a message. After the last message, or an error, it releases the place.
func (s *outgoing) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && !s.once {
		return nil
	}
	s.stop()
	if s.place.End(); !s.finished.Load() {
		go s.place.GiveBack()
	}
	return err
}

// event returns the event key of a call. It panics if o was not created with NewOutbound.
func (o *Outbound) event(ctx context.Context, method string, conn *grpc.ClientConn) string {
	if o == nil || o.outbound == nil {
		panic("slidegate: this Outbound is nil or zero; create it with grpclimit.NewOutbound")
	}
	if o.cfg.Event == nil {
		return conn.Target()
	}
	return o.cfg.Event(ctx, method)
}

// waitIn returns how long the status of err asks the client to wait, or 0.
func waitIn(err error) time.Duration {
	if code := status.Code(err); code != codes.ResourceExhausted && code != codes.Unavailable {
		return 0
	}
	wait, _ := retryDelay(err)
	return wait
}

// unsentError is the limiter's error for a call that was not sent.
type unsentError struct {
	error
	code codes.Code
}

// unsent adds a status to err, the limiter's error for a call that was not sent. It checks for an
// outage before it checks for a deadline, because a network timeout also matches
// context.DeadlineExceeded.
func unsent(ctx context.Context, err error) error {
	code := codes.Unavailable
	switch {
	case ctx.Err() != nil:
		code = status.FromContextError(ctx.Err()).Code()
	case errors.Is(err, inflight.ErrLost):
		code = codes.Canceled
	case health.IsOutage(err):
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, window.ErrEmptyEvent):
		code = codes.InvalidArgument
	}
	return &unsentError{err, code}
}

// Unwrap returns the limiter's error.
func (e *unsentError) Unwrap() error { return e.error }

// GRPCStatus returns the status of the call.
func (e *unsentError) GRPCStatus() *status.Status { return status.New(e.code, e.Error()) }
