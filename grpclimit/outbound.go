package grpclimit

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/outbound"
	"github.com/slidegate/slidegate/internal/pipeline"
	"github.com/slidegate/slidegate/internal/place"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// OutboundConfig configures an Outbound. Outage is required, and one of Turns and Places.
type OutboundConfig struct {
	// Turns says when calls may be sent. Each takes one turn, and waits for it.
	Turns *pace.Limiter

	// Places says how many may run at once. A call waits for a place, then for its turn, and gives the
	// place back when it is over. For a stream that is when the caller has received its end, or its context
	// ends. The wait for the turn counts toward MaxHold.
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

	// Log receives the start and end of outages, with the cause, and when the Fallback of Places decides.
	// That of Turns is not seen here. nil means slog.Default().
	Log *slog.Logger
}

// Outbound lets the calls of a fleet to somebody else share turns and places. Make it with NewOutbound.
// It is safe for concurrent use.
//
// Chain it last, next to grpc. An interceptor inside that opens a stream again does so without a place, and
// one that answers by a stream of its own keeps the place until the context ends, or its end was received.
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
// the lease of its place is lost, it ends with Canceled, and its error matches inflight.ErrLost. With FailOpen,
// it goes on if that is because Redis did not answer.
func (o *Outbound) UnaryClient(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	event := o.event(ctx, method, conn)
	held, err := o.calls.Begin(ctx, event)
	if err != nil {
		return unsent(ctx, err)
	}
	defer held.Release()
	err = next(held.Context, method, request, reply, conn, opts...)
	o.calls.Pause(ctx, event, waitIn(err))
	return held.Explain(err)
}

// StreamClient implements grpc.StreamClientInterceptor. It does the same for a stream, which takes one turn
// when it opens. Receive until there is an error, or end the context: until then, the stream holds its place
// even if the server has ended it. If its lease is lost, the stream ends with Canceled, and the cause of its context is
// inflight.ErrLost.
func (o *Outbound) StreamClient(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	event := o.event(ctx, method, conn)
	held, err := o.calls.Begin(ctx, event)
	if err != nil {
		return nil, unsent(ctx, err)
	}
	opened := false
	defer func() {
		if !opened { // grpc may not have called OnFinish
			held.Release()
		}
	}()
	s := &outgoing{held: held, once: !desc.ServerStreams}
	opts = append(opts[:len(opts):len(opts)], grpc.OnFinish(func(err error) {
		s.finished.Store(true)
		go func() { // grpc holds a lock of the stream meanwhile
			o.calls.Pause(ctx, event, waitIn(err))
			held.GiveBack() // the context stays: an interceptor inside may open the stream again
		}()
	}))
	if s.ClientStream, err = next(held.Context, desc, conn, method, opts...); err != nil {
		return nil, held.Explain(err)
	}
	opened = true
	s.stop = context.AfterFunc(ctx, held.Release)
	return s, nil
}

// outgoing is a stream that holds a place.
type outgoing struct {
	grpc.ClientStream
	held     *place.Held
	once     bool        // it receives one message
	finished atomic.Bool // for grpc, so that OnFinish gives the place back
	stop     func() bool // no longer release the place when the context of the caller ends
}

// RecvMsg receives a message. After the last one, the place is given back.
func (s *outgoing) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && !s.once {
		return nil
	}
	s.stop()
	if s.held.End(); !s.finished.Load() {
		go s.held.GiveBack()
	}
	return err
}

// event returns the event of a call. It panics if o does not come from NewOutbound.
func (o *Outbound) event(ctx context.Context, method string, conn *grpc.ClientConn) string {
	if o == nil || o.calls == nil {
		panic("slidegate: this Outbound is nil or zero; make it by grpclimit.NewOutbound")
	}
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
type unsentError struct {
	error
	code codes.Code
}

// unsent returns the error of a limiter about a call that was not sent. In an outage, a timeout of the
// network also matches context.DeadlineExceeded, so that is asked after it.
func unsent(ctx context.Context, err error) error {
	code := codes.Unavailable
	switch {
	case ctx.Err() != nil:
		code = status.FromContextError(ctx.Err()).Code()
	case errors.Is(err, inflight.ErrLost):
		code = codes.Canceled
	case pipeline.IsOutage(err):
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
