package limiter

import (
	"context"
	"fmt"
)

const verbUndo = "undo" // refund or reset each of several events

// UndoTogether performs all undos in one script call, even if ctx is done, and makes the denial
// caches forget the events. It returns the error, or nil, for each of undos. If they cannot share a
// call at the moment, it changes nothing and returns an empty slice. The events must have passed
// Check.
func UndoTogether(ctx context.Context, undos []Ask) (errs []error) {
	b := NewBundle(undos)
	if b == nil || b.Len() < len(undos) || !b.joins() {
		return nil
	}
	r := b.newRequest(verbUndo)
	defer r.Free()
	r.Joint.Each = true
	for _, a := range b.asks { // a reset refunds 0 units
		r.Joint.Units = append(r.Joint.Units, Integer(min(a.Undo.Units, a.MaxUnits)), Integer(a.Undo.At))
		r.Rest = append(r.Rest, Integer(int64(len(a.Undo.Limits))))
		r.Rest, _ = scriptArgs(r.Rest, a.Undo.Limits, a.CountDenied)
	}
	timeout := b.timeout()
	ctx, cancel := finishing(ctx, timeout)
	defer cancel()
	if !b.do(ctx, timeout, r) {
		return nil
	}
	if r.Err == nil && len(r.Reply) != len(undos) {
		r.Err = r.Explain(fmt.Errorf("the script replied %d integers to undo, not %d", len(r.Reply), len(undos)))
	}
	for i, a := range b.asks {
		err := r.ErrOf(b.keys[i])
		if r.Err == nil { // otherwise a sender can still be writing the texts
			err = r.TextOf(b.keys[i], i)
		}
		errs = append(errs, a.Wrap(err))
		b.stores[i].denials.forget(b.keys[i])
	}
	return errs
}
