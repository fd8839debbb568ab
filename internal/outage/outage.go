// Package outage defines what a Fallback does, for limiters of every kind.
package outage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/internal/pipeline"
)

// maxEvents is the MaxEvents of a Fallback that does not set it.
const maxEvents = 1 << 20

// Use prepares a Fallback for the limiter of the given name. It returns what is wrong with the
// Fallback, and what to do. nested says that the Fallback itself has a Fallback.
func Use(name string, fallback *engine.Limiter, nested bool) error {
	switch {
	case !fallback.Made():
		return fmt.Errorf("slidegate: limiter %q has an uninitialized Fallback; create it with New or NewLocal", name)
	case nested:
		return fmt.Errorf("slidegate: limiter %q has a Fallback %q that has a Fallback too; leave out one of them", name, fallback.Name)
	}
	fallback.BoundEvents(maxEvents)
	return nil
}

// Needless returns the error for a limiter in memory that has a Fallback.
func Needless(name string) error {
	return fmt.Errorf("slidegate: limiter %q is in memory and has a Fallback, which it never needs; leave it out", name)
}

// grace is how long a Fallback may take if the deadline has already passed when it is asked, as on
// a busy machine.
const grace = 20 * time.Millisecond

// Ask asks the Fallback if there is one, if the cause is an outage of Redis, and if the caller has
// not left. Otherwise, or if the Fallback cannot answer either, it returns the cause, which says
// whether Redis may have counted the request.
func Ask[F any](ctx context.Context, cause error, fallback *F, ask func(context.Context, *F) error) error {
	ended := ctx.Err() != nil
	if fallback == nil || !pipeline.IsOutage(cause) || ended && !pipeline.IsExpired(cause) {
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

// Reset forgets an event of a limiter, and of its Fallback if there is one.
func Reset[F any](ctx context.Context, l *engine.Limiter, event string, fallback *F, reset func(*F, context.Context, string) error) error {
	if err := l.Check(ctx, engine.Peek, event, 1); err != nil {
		return err
	}
	err := l.Reset(ctx, event)
	if fallback != nil {
		err = errors.Join(err, reset(fallback, ctx, event))
	}
	return err
}
