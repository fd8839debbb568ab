// Package place holds a lease of package inflight for a call or a request, until that is really over.
package place

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/slidegate/slidegate/inflight"
)

// Held is the place of a call.
type Held struct {
	// Context is for the call. It ends with its parent, with the cause inflight.ErrLost if the lease is
	// lost, and on Release. Unlike that of Lease.Context, the end of its parent does not give the place
	// back, because the call may not have noticed yet.
	Context context.Context

	lost    context.Context // ends with the lease
	release func()
}

// Hold holds a lease for a call whose context is parent. A nil lease is no place: then the context is
// parent, and Release does nothing.
func Hold(parent context.Context, lease *inflight.Lease) *Held {
	if lease == nil {
		return &Held{Context: parent, release: func() {}}
	}
	ctx, cancel := context.WithCancelCause(parent)
	lost := lease.Context(context.WithoutCancel(parent))
	stop := context.AfterFunc(lost, func() { cancel(context.Cause(lost)) })
	return &Held{ctx, lost, sync.OnceFunc(func() {
		stop()
		_ = lease.Release(parent) // if it fails, the place is free after TTL
		cancel(nil)
	})}
}

// Release gives the place back, once. It ends the context.
func (h *Held) Release() { h.release() }

// OnLost calls f if the lease is lost.
func (h *Held) OnLost(f func()) {
	if h.lost == nil {
		return
	}
	context.AfterFunc(h.lost, func() {
		if errors.Is(context.Cause(h.lost), inflight.ErrLost) {
			f()
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
