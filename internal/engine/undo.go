package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/internal/send"
)

const verbUndo = "undo" // refund or reset each of several events

// UndoTogether performs all undos in one script call, even if ctx is done. If they cannot share a
// call at the moment, it changes nothing and returns false. The events must have passed Check.
func UndoTogether(ctx context.Context, undos []Ask) (errs []error, undone bool) {
	t := gather(undos)
	if t == nil || t.Len() < len(undos) || !t.joins() {
		return nil, false
	}
	timeout := t.timeout()
	if ctx = context.WithoutCancel(ctx); timeout < 0 {
		var cancel context.CancelFunc
		ctx, cancel = calls.Finish(ctx)
		defer cancel()
	}
	r := t.undoRequest()
	defer r.Free()
	t.stores[0].pipeline.Do(ctx, timeout, r)
	if r.IsApart() {
		t.stores[0].pipeline.SetApart()
		return nil, false
	}
	return t.undone(r), true
}

// undoRequest returns the request to undo all asks. It refunds 0 units for a reset.
func (t *gathered) undoRequest() *send.Request {
	r := t.newRequest(verbUndo)
	r.Joint.Each = true
	for _, a := range t.asks {
		r.Joint.Units = append(r.Joint.Units, Integer(min(a.Undo.Units, a.MaxUnits)), Integer(a.Undo.At))
		r.Rest = append(r.Rest, Integer(int64(len(a.Undo.Limits))))
		r.Rest, _ = scriptArgs(r.Rest, a.Undo.Limits, a.CountDenied)
	}
	r.Group = strings.Join(r.Rest, " ")
	return r
}

// undone returns the error for each event. It also makes the denial caches forget the events.
func (t *gathered) undone(r *send.Request) []error {
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
