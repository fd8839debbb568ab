package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/internal/pipeline"
)

const verbUndo = "undo" // refund or reset each of several events

// An Undo refunds the units that a decision counted for an event or, if Counted has no limits,
// resets the event.
type Undo struct {
	*Limiter
	Event   string
	Counted Counted
}

// UndoTogether performs all undos in one script call, even if ctx is done. If they cannot share a
// call at the moment, it changes nothing and returns false. The events must have passed Check.
func UndoTogether(ctx context.Context, undos []Undo) (errs []error, undone bool) {
	t := gather(asksOf(undos))
	if t == nil || t.Len() < len(undos) || !t.joins() {
		return nil, false
	}
	timeout := t.timeout()
	if ctx = context.WithoutCancel(ctx); timeout < 0 {
		var cancel context.CancelFunc
		ctx, cancel = calls.Finish(ctx)
		defer cancel()
	}
	r := t.undoRequest(undos)
	defer r.Free()
	t.stores[0].pipeline.Do(ctx, timeout, r)
	if r.IsApart() {
		t.stores[0].pipeline.SetApart()
		return nil, false
	}
	return t.undone(r), true
}

// asksOf returns an Ask for each undo. Its N is the number of units to refund, or 0 for a reset.
func asksOf(undos []Undo) []Ask {
	asks := make([]Ask, len(undos))
	for i, u := range undos {
		asks[i] = Ask{Limiter: u.Limiter, Event: u.Event, N: min(u.Counted.Units, u.MaxUnits)}
	}
	return asks
}

// undoRequest returns the request for undos.
func (t *gathered) undoRequest(undos []Undo) *pipeline.Request {
	r := t.newRequest(verbUndo)
	r.Joint.Each = true
	for i, u := range undos {
		r.Joint.Units = append(r.Joint.Units, Integer(t.asks[i].N), Integer(u.Counted.At))
		r.Rest = append(r.Rest, Integer(int64(len(u.Counted.Limits))))
		r.Rest, _ = scriptArgs(r.Rest, u.Counted.Limits, u.CountDenied)
	}
	r.Group = strings.Join(r.Rest, " ")
	return r
}

// undone returns the error for each event. It also makes the denial caches forget the events.
func (t *gathered) undone(r *pipeline.Request) []error {
	errs := make([]error, len(t.asks))
	if r.Err == nil && len(r.Reply) != len(errs) {
		r.Err = r.Explain(fmt.Errorf("the script replied %d integers to undo, not %d", len(r.Reply), len(errs)))
	}
	for i, a := range t.asks {
		err := r.ErrOf(t.keys[i])
		if r.Err == nil { // otherwise a sender can still be writing the texts
			err = r.TextOf(t.keys[i], i)
		}
		errs[i] = a.Wrap(err)
		t.stores[i].denials.Forget(t.keys[i])
	}
	return errs
}
