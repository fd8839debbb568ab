package window

import (
	"context"
	"errors"
	"fmt"

	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/internal/engine"
)

// Undo is one operation of UndoAll: a Refund of Decision or, if Reset is set, a Reset of Event.
type Undo struct {
	Limiter  *Limiter // required
	Event    string   // the event that was decided on, or the event to reset
	Decision Decision // the decision to refund; without effect if Reset is set
	Reset    bool     // forget Event, as Limiter.Reset does
}

// UndoAll refunds decisions and resets events, like Limiter.Refund and Reset, even if ctx is done.
// Use it to refund what AllowAll counted, for example. It returns the error of Refund or Reset, or
// nil, for each of undos, in order. If one of them fails, the others are undone all the same.
//
// Up to 16 operations that AllowAll could decide jointly are undone by one script call. All other
// operations are undone concurrently. UndoAll therefore takes one round trip, and at most the
// shortest Timeout of the limiters, or 5 s if all are negative.
func UndoAll(ctx context.Context, undos ...Undo) []error {
	errs, done := make([]error, len(undos)), make([]bool, len(undos))
	together, indices := make([]engine.Ask, 0, len(undos)), make([]int, 0, len(undos))
	for i, u := range undos {
		if !u.isMade() {
			errs[i] = fmt.Errorf("slidegate: undo %d of UndoAll has no Limiter from New or NewLocal; create one", i+1)
		} else if of := u.inRedis(); of.Limiter != nil {
			together, indices = append(together, of), append(indices, i)
		}
	}
	replies, undone := engine.UndoTogether(ctx, together)
	for k := range replies {
		errs[indices[k]], done[indices[k]] = replies[k], undone
	}
	calls.Concurrently(len(undos), func(i int) bool { return done[i] || !undos[i].isMade() || undos[i].Limiter.engine.InMemory() }, func(i int) {
		switch {
		case !undos[i].isMade():
		case done[i]:
			errs[i] = errors.Join(errs[i], undos[i].inFallback(ctx))
		default:
			errs[i] = undos[i].do(ctx)
		}
	})
	return errs
}

// isMade reports whether there is a limiter, and it is not zero.
func (u Undo) isMade() bool { return u.Limiter != nil && u.Limiter.engine.Made() }

// inRedis returns what to undo in Redis. Its Limiter is nil if there is nothing to undo in Redis,
// or if the event is invalid.
func (u Undo) inRedis() (of engine.Ask) {
	e := u.Limiter.made()
	switch d := u.Decision; {
	case e.InMemory() || u.Event == "":
	case u.Reset:
		of = engine.Ask{Limiter: e, Event: u.Event}
	case d.Counted > 0 && !d.Degraded:
		if c := u.Limiter.counted(d); len(c.Limits) > 0 {
			of = engine.Ask{Limiter: e, Event: u.Event, Undo: c}
		}
	}
	return of
}

// do performs a single undo.
func (u Undo) do(ctx context.Context) error {
	if !u.Reset {
		return u.Limiter.Refund(ctx, u.Event, u.Decision)
	}
	ctx, cancel := u.Limiter.engine.Finishing(ctx)
	defer cancel()
	return u.Limiter.Reset(ctx, u.Event)
}

// inFallback resets the event in the Fallback, if u is a reset and there is a Fallback.
func (u Undo) inFallback(ctx context.Context) error {
	if !u.Reset || u.Limiter.fallback == nil {
		return nil
	}
	u.Limiter = u.Limiter.fallback
	return u.do(ctx)
}
