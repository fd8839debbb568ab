// Package place holds a lease of package inflight for a call or a request, until that is really
// over.
package place

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/pipeline"
)

// Held is the place of a call.
type Held struct {
	// Context is for the call. It ends with its parent, with the cause inflight.ErrLost if the
	// lease is lost, and on Release. Unlike with Lease.Context, the end of its parent does not
	// release the place, because the call may not have noticed yet.
	Context context.Context

	lease    context.Context // ends with the lease; nil without one
	goesOn   bool            // even if the lease is lost in an outage
	giveBack func()
	end      context.CancelCauseFunc
}

// Hold holds a lease for a call whose context is parent. A nil lease means that there is no place:
// then the context is parent, and Release does nothing. With FailOpen, the call continues if the
// lease is lost because Redis does not answer, like calls that start during the outage.
func (j *Judge) Hold(parent context.Context, lease *inflight.Lease) *Held {
	if lease == nil {
		return &Held{Context: parent, giveBack: func() {}, end: func(error) {}}
	}
	ctx, end := context.WithCancelCause(parent)
	h := &Held{Context: ctx, lease: lease.Context(context.WithoutCancel(parent)), goesOn: j.outage == failOpen, end: end}
	stop := h.OnLost(end)
	h.giveBack = sync.OnceFunc(func() {
		stop()
		_ = lease.Release(parent) // if it fails, the place is free after TTL
	})
	return h
}

// GiveBack releases the place, once, without ending the context.
func (h *Held) GiveBack() { h.giveBack() }

// End ends the context, without releasing the place.
func (h *Held) End() { h.end(nil) }

// Release releases the place, and ends the context.
func (h *Held) Release() {
	h.GiveBack()
	h.End()
}

// OnLost calls f with the cause if the lease is lost, unless the call continues, or stop was called
// before.
func (h *Held) OnLost(f func(cause error)) (stop func() bool) {
	if h.lease == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(h.lease, func() {
		cause := context.Cause(h.lease)
		if errors.Is(cause, inflight.ErrLost) && (!h.goesOn || !pipeline.IsOutage(cause)) {
			f(cause)
		}
	})
}

// Explain adds inflight.ErrLost to the error of a call that ended because its lease was lost.
func (h *Held) Explain(err error) error {
	if err == nil || errors.Is(err, inflight.ErrLost) || !errors.Is(context.Cause(h.Context), inflight.ErrLost) {
		return err
	}
	return fmt.Errorf("%w: %w", inflight.ErrLost, err)
}
