package window

import (
	"context"
	"errors"

	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/internal/engine"
)

// Undo is one operation of UndoAll: the Refund of a Decision or, without one, the Reset of the
// Event.
type Undo struct {
	Limiter  *Limiter  // from New or NewLocal
	Event    string    // the event of the Decision, or the event to reset
	Decision *Decision // the decision to refund; if nil, the Event is reset
}

// UndoAll refunds decisions and resets events, each like Limiter.Refund or Reset, even if ctx has
// ended: for example to refund what AllowAll counted. It returns one error or nil for each
// argument, in order: that of Refund or Reset. One that fails does not keep the others from being
// undone.
//
// If AllowAll could decide them jointly, up to 16 are undone by one script call. Otherwise all are
// undone concurrently. So UndoAll takes one round trip, and at most the shortest Timeout of the
// limiters, or 5 s if all are negative.
func UndoAll(ctx context.Context, undos ...Undo) []error {
	errs, done := make([]error, len(undos)), make([]bool, len(undos))
	together, indices := make([]engine.Undo, 0, len(undos)), make([]int, 0, len(undos))
	for i, u := range undos {
		if of := u.inRedis(); of.Limiter != nil {
			together, indices = append(together, of), append(indices, i)
		}
	}
	replies, undone := engine.UndoTogether(ctx, together)
	for k := range replies {
		errs[indices[k]], done[indices[k]] = replies[k], undone
	}
	calls.Concurrently(0, len(undos), func(i int) bool { return done[i] || undos[i].Limiter.engine.InMemory() }, func(i int) {
		if done[i] {
			errs[i] = errors.Join(errs[i], undos[i].inFallback(ctx))
		} else {
			errs[i] = undos[i].do(ctx)
		}
	})
	return errs
}

// inRedis returns what to undo in Redis. Its Limiter is nil if that is nothing, or the event is
// invalid.
func (u Undo) inRedis() (of engine.Undo) {
	e := u.Limiter.made()
	switch d := u.Decision; {
	case e.InMemory() || u.Event == "":
	case d == nil:
		of = engine.Undo{Limiter: e, Event: u.Event}
	case d.Counted > 0 && !d.Degraded:
		if c := u.Limiter.counted(*d); len(c.Limits) > 0 {
			of = engine.Undo{Limiter: e, Event: u.Event, Counted: &c}
		}
	}
	return of
}

// do performs a single undo.
func (u Undo) do(ctx context.Context) error {
	if u.Decision != nil {
		return u.Limiter.Refund(ctx, u.Event, *u.Decision)
	}
	ctx, cancel := u.Limiter.engine.Finishing(ctx)
	defer cancel()
	return u.Limiter.Reset(ctx, u.Event)
}

// inFallback resets the event in the Fallback, if this undo is a reset.
func (u Undo) inFallback(ctx context.Context) error {
	if u.Decision != nil || u.Limiter.fallback == nil {
		return nil
	}
	return Undo{Limiter: u.Limiter.fallback, Event: u.Event}.do(ctx)
}
