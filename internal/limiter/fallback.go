package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/health"
)

// fallbackEvents is the MaxEvents of a Fallback whose configuration sets none.
const fallbackEvents = 1 << 20

// UseFallback prepares fallback for the limiter with the given name. It returns an error, with the
// remedy, if the Fallback is invalid. The parameter nested is true if the Fallback has a Fallback
// itself.
func UseFallback(name string, fallback *Limiter, nested bool) error {
	switch {
	case !fallback.Made():
		return fmt.Errorf("slidegate: limiter %q has an uninitialized Fallback; create it with New or NewLocal", name)
	case nested:
		return fmt.Errorf("slidegate: limiter %q has a Fallback %q that has a Fallback too; leave out one of them", name, fallback.Name)
	}
	if fallback.Bound != nil && fallback.MaxEvents == 0 {
		fallback.Bound(fallbackEvents)
	}
	return nil
}

// NeedlessFallback returns the error for a limiter in memory that has a Fallback.
func NeedlessFallback(name string) error {
	return fmt.Errorf("slidegate: limiter %q is in memory and has a Fallback, which it never needs; leave it out", name)
}

// grace is how long a Fallback may take if the caller's deadline has already passed, as can happen
// on a busy machine.
const grace = 20 * time.Millisecond

// AskFallback calls ask with the Fallback if there is one, if cause is an outage of Redis, and if
// the caller has not left. Otherwise, or if the Fallback fails too, it returns cause, which states
// whether Redis may have counted the request.
func AskFallback[F any](ctx context.Context, cause error, fallback *F, ask func(context.Context, *F) error) error {
	ended := ctx.Err() != nil
	if fallback == nil || !health.IsOutage(cause) || ended && !health.IsExpired(cause) {
		return cause
	}
	if ended {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
	}
	if err := ask(ctx, fallback); err != nil {
		return fmt.Errorf("%w; the Fallback failed, too: %v", cause, err) //nolint:errorlint // it must match only the cause
	}
	return nil
}

// DecideInstead decides a request that failed because of cause, as AskFallback does, for a limiter
// whose Fallback is l. The reply r keeps its key and the trace of the call to Redis.
func (l *Limiter) DecideInstead(ctx context.Context, cause error, r *Reply, v Verb, event string, n int64) error {
	key, trace := r.Key, r.Trace
	err := AskFallback(ctx, cause, l, func(ctx context.Context, f *Limiter) error { return f.Decide(ctx, r, v, event, n) })
	r.Key, r.Trace = key, trace
	return err
}

// ResetBoth forgets event in the limiter l, with reset, and in its Fallback, if there is one, with
// resetIn.
func ResetBoth[F any](
	ctx context.Context, l *Limiter, event string, reset func(context.Context, string) error, fallback *F, resetIn func(*F, context.Context, string) error,
) error {
	if err := l.Check(ctx, Peek, event, 1); err != nil {
		return err
	}
	err := reset(ctx, event)
	if fallback != nil {
		err = errors.Join(err, resetIn(fallback, ctx, event))
	}
	return err
}
