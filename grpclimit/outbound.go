package grpclimit

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/outbound"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// OutboundConfig configures an Outbound. Outage is required, and one of Turns and Places.
type OutboundConfig struct {
	// Turns says when calls may be sent. Each takes one turn, and waits for it.
	Turns *pace.Limiter

	// Places says how many may run at once. A call waits for a place, then for its turn, and gives the
	// place back when it is over. For a stream that is when the stream has ended.
	Places *inflight.Limiter

	// Event returns the event of a call for both limiters. It must not be "". nil is the target of the
	// connection, such as "dns:///api.example.com".
	Event Key

	// MaxPause is the longest pause that an answer can cause, up to a day. 0 is a minute.
	MaxPause time.Duration

	// Outage says what to do while a limiter does not answer: FailOpen sends the call all the same,
	// FailClosed fails it with Unavailable. It has no default, because either can do harm. If the
	// limiter has a Fallback, that decides first.
	Outage Outage

	// Log receives the start and end of outages, with the cause. nil means slog.Default().
	Log *slog.Logger
}

// Outbound lets the calls of a fleet to somebody else share turns and places. Make it with NewOutbound.
// It is safe for concurrent use.
//
// An answer ResourceExhausted or Unavailable with RetryInfo pauses the turns of its event in all
// processes. Outbound never repeats a call. Retries of an interceptor that is chained before it take
// turns of their own. Those of grpc's retry policy do not, because no interceptor sees them.
type Outbound struct {
	cfg   OutboundConfig
	calls *outbound.Calls
}

// NewOutbound returns an Outbound. It returns an error if neither Turns nor Places is set, if MaxPause is
// not from 0 to a day, or if Outage is neither FailOpen nor FailClosed.
func NewOutbound(cfg OutboundConfig) (*Outbound, error) {
	calls, err := outbound.New("grpclimit.Outbound", outbound.Config{
		Turns: cfg.Turns, Places: cfg.Places, MaxPause: cfg.MaxPause, Outage: string(cfg.Outage), Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	return &Outbound{cfg, calls}, nil
}

// UnaryClient implements grpc.UnaryClientInterceptor. A call that gets no place or turn fails: with
// DeadlineExceeded if its turn would come after its deadline, or else with the status of its context. If
// the lease of its place is lost, it ends with Canceled, and its error matches inflight.ErrLost.
func (o *Outbound) UnaryClient(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	event := o.event(ctx, method, conn)
	held, err := o.calls.Begin(ctx, event)
	if err != nil {
		return &unsentError{err}
	}
	defer held.Release()
	err = next(held.Context, method, request, reply, conn, opts...)
	o.calls.Pause(ctx, event, waitIn(err))
	return held.Explain(err)
}

// StreamClient implements grpc.StreamClientInterceptor. It does the same for a stream, which takes one turn
// when it opens. If its lease is lost, the stream ends with Canceled, and the cause of its context is
// inflight.ErrLost.
func (o *Outbound) StreamClient(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	event := o.event(ctx, method, conn)
	held, err := o.calls.Begin(ctx, event)
	if err != nil {
		return nil, &unsentError{err}
	}
	opts = append(opts[:len(opts):len(opts)], grpc.OnFinish(func(err error) {
		go func() { // grpc holds a lock of the stream meanwhile
			o.calls.Pause(ctx, event, waitIn(err))
			held.Release()
		}()
	}))
	stream, err := next(held.Context, desc, conn, method, opts...)
	if err != nil { // grpc may not have called OnFinish
		held.Release()
	}
	return stream, held.Explain(err)
}

func (o *Outbound) event(ctx context.Context, method string, conn *grpc.ClientConn) string {
	if o.cfg.Event == nil {
		return conn.Target()
	}
	return o.cfg.Event(ctx, method)
}

// waitIn returns how long a status tells its client to wait, or 0.
func waitIn(err error) time.Duration {
	s := status.Convert(err)
	if s.Code() == codes.ResourceExhausted || s.Code() == codes.Unavailable {
		for _, detail := range s.Details() {
			if info, ok := detail.(*errdetails.RetryInfo); ok {
				return info.GetRetryDelay().AsDuration()
			}
		}
	}
	return 0
}

// unsentError is the error of a limiter about a call that was not sent.
type unsentError struct{ error }

// Unwrap returns the limiter's error.
func (e *unsentError) Unwrap() error { return e.error }

// GRPCStatus returns the status of the call.
func (e *unsentError) GRPCStatus() *status.Status {
	switch {
	case errors.Is(e, context.DeadlineExceeded) || errors.Is(e, context.Canceled):
		return status.FromContextError(e.error)
	case errors.Is(e, window.ErrEmptyEvent):
		return status.New(codes.InvalidArgument, e.Error())
	}
	return status.New(codes.Unavailable, e.Error())
}
