package window

import (
	"context"
	"errors"
	"fmt"

	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/internal/limiter"
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
	errs, left := make([]error, len(undos)), make([]*Limiter, len(undos)) // left: which limiter still has to undo; nil for none
	together, indices := make([]limiter.Ask, 0, len(undos)), make([]int, 0, len(undos))
	for i, u := range undos {
		if u.Limiter == nil || !u.Limiter.base.Made() {
			errs[i] = fmt.Errorf("slidegate: undo %d of UndoAll has no Limiter from New or NewLocal; create one", i+1)
			continue
		}
		left[i] = u.Limiter
		if ask := u.inRedis(); ask.Limiter != nil {
			together, indices = append(together, ask), append(indices, i)
		}
	}
	for k, err := range limiter.UndoTogether(ctx, together) {
		i := indices[k]
		errs[i], left[i] = err, nil
		if undos[i].Reset {
			left[i] = undos[i].Limiter.fallback
		}
	}
	calls.Concurrently(len(undos), func(i int) bool { return left[i] == nil || left[i].base.InMemory() }, func(i int) {
		if left[i] != nil {
			errs[i] = errors.Join(errs[i], undos[i].do(ctx, left[i]))
		}
	})
	return errs
}

// inRedis returns what to undo in Redis. Its Limiter is nil if there is nothing to undo in Redis,
// or if the event is invalid.
func (u Undo) inRedis() (ask limiter.Ask) {
	base, d := &u.Limiter.base, u.Decision
	switch {
	case base.InMemory() || u.Event == "":
	case u.Reset:
		ask = limiter.Ask{Limiter: base, Event: u.Event}
	case d.Counted > 0 && !d.Degraded:
		if c := u.Limiter.counted(d); len(c.Limits) > 0 {
			ask = limiter.Ask{Limiter: base, Event: u.Event, Undo: c}
		}
	}
	return ask
}

// do performs the undo by itself, with the limiter l.
func (u Undo) do(ctx context.Context, l *Limiter) error {
	if !u.Reset {
		return l.Refund(ctx, u.Event, u.Decision)
	}
	ctx, cancel := l.base.Finishing(ctx)
	defer cancel()
	return l.Reset(ctx, u.Event)
}
