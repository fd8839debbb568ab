package adapter

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/health"
)

// Place is a place in flight that a request holds.
type Place struct {
	// Context is the context to use for the request. It is canceled with its parent, on Release,
	// and, with the cause inflight.ErrLost, when the lease is lost. Unlike with Lease.Context, the
	// end of the parent does not release the place, because the request may not have noticed it yet.
	Context context.Context

	lease    context.Context // done when the lease ends; nil if there is no lease
	goesOn   bool            // the request continues even if the lease is lost in an outage
	giveBack func()
	end      context.CancelCauseFunc
}

// hold returns the place that lease grants to a request whose context is parent. A nil lease means
// that the request needs no place, or has none in an outage: Context is then parent, and Release
// does nothing. With FailOpen, the request continues if the lease is lost because Redis does not
// answer, just as requests that start during the outage proceed. When the place has been released,
// released is called.
func hold(parent context.Context, lease *inflight.Lease, outage string, released func()) *Place {
	if lease == nil {
		return &Place{Context: parent, giveBack: func() {}, end: func(error) {}}
	}
	ctx, end := context.WithCancelCause(parent)
	p := &Place{Context: ctx, lease: lease.Context(context.WithoutCancel(parent)), goesOn: outage == failOpen, end: end}
	stop := p.OnLost(end)
	p.giveBack = sync.OnceFunc(func() {
		stop()
		_ = lease.Release(parent) // if this fails, the place becomes free after TTL
		released()
	})
	return p
}

// GiveBack releases the place without canceling the context. Later calls do nothing.
func (p *Place) GiveBack() { p.giveBack() }

// End cancels the context without releasing the place.
func (p *Place) End() { p.end(nil) }

// Release releases the place, and cancels the context.
func (p *Place) Release() {
	p.GiveBack()
	p.End()
}

// OnLost arranges to call f with the cause if the lease is lost, unless the request continues
// anyway. The function stop cancels that.
func (p *Place) OnLost(f func(cause error)) (stop func() bool) {
	if p.lease == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(p.lease, func() {
		cause := context.Cause(p.lease)
		if errors.Is(cause, inflight.ErrLost) && (!p.goesOn || !health.IsOutage(cause)) {
			f(cause)
		}
	})
}

// Explain adds inflight.ErrLost to err, the error of the request, if the request ended because its
// lease was lost.
func (p *Place) Explain(err error) error {
	if err == nil || errors.Is(err, inflight.ErrLost) || !errors.Is(context.Cause(p.Context), inflight.ErrLost) {
		return err
	}
	return fmt.Errorf("%w: %w", inflight.ErrLost, err)
}
