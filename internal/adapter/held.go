// Package adapter holds what middleware for HTTP and gRPC, and the calls that a service makes, have in
// common: places held until a request is over, what happens in an outage and how it is logged,
// limiters that decide without counting, and the words of a refusal.
package adapter

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/health"
)

// Held is a place that a call holds.
type Held struct {
	// Context is the context to use for the call. It is canceled with its parent, on Release, and,
	// with the cause inflight.ErrLost, when the lease is lost. Unlike with Lease.Context, the end
	// of the parent does not release the place, because the call may not have noticed it yet.
	Context context.Context

	lease    context.Context // done when the lease ends; nil if there is no lease
	goesOn   bool            // the call continues even if the lease is lost in an outage
	giveBack func()
	end      context.CancelCauseFunc
}

// Hold holds lease for a call whose context is parent. A nil lease means that the call has no
// place: Context is then parent, and Release does nothing. With FailOpen, the call continues if the
// lease is lost because Redis does not answer, just as calls that start during the outage proceed.
func (j *Judge) Hold(parent context.Context, lease *inflight.Lease) *Held {
	if lease == nil {
		return &Held{Context: parent, giveBack: func() {}, end: func(error) {}}
	}
	ctx, end := context.WithCancelCause(parent)
	h := &Held{Context: ctx, lease: lease.Context(context.WithoutCancel(parent)), goesOn: j.outage == failOpen, end: end}
	stop := h.OnLost(end)
	h.giveBack = sync.OnceFunc(func() {
		stop()
		_ = lease.Release(parent) // if this fails, the place becomes free after TTL
	})
	return h
}

// GiveBack releases the place without canceling the context. Later calls do nothing.
func (h *Held) GiveBack() { h.giveBack() }

// End cancels the context without releasing the place.
func (h *Held) End() { h.end(nil) }

// Release releases the place, and cancels the context.
func (h *Held) Release() {
	h.GiveBack()
	h.End()
}

// OnLost arranges to call f with the cause if the lease is lost, unless the call continues anyway.
// The function stop cancels that.
func (h *Held) OnLost(f func(cause error)) (stop func() bool) {
	if h.lease == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(h.lease, func() {
		cause := context.Cause(h.lease)
		if errors.Is(cause, inflight.ErrLost) && (!h.goesOn || !health.IsOutage(cause)) {
			f(cause)
		}
	})
}

// Explain adds inflight.ErrLost to err, the error of the call, if the call ended because its lease
// was lost.
func (h *Held) Explain(err error) error {
	if err == nil || errors.Is(err, inflight.ErrLost) || !errors.Is(context.Cause(h.Context), inflight.ErrLost) {
		return err
	}
	return fmt.Errorf("%w: %w", inflight.ErrLost, err)
}
