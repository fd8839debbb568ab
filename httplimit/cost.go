package httplimit

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/window"
)

// Used represents what a request has used by the time its handler returns. It is the argument of
// Config.CostAfter. The handler knows some costs, such as tokens, and the middleware sees others,
// such as bytes.
type Used struct {
	// Units is the last cost that the handler reported with SetCost. If it reported none, Units is
	// the estimate that was charged.
	Units int64

	// Bytes counts what the handler wrote of the body. It excludes headers and what the handler
	// wrote to a connection that it took over. For a HEAD request it is 0.
	Bytes int64
}

// SetCost reports what the request of ctx has cost so far, in units. Call it in a handler with the
// context of its request, before the handler returns. The last call replaces earlier ones.
//
// The report reaches each Middleware with a CostAfter around the handler. Without one, or if the
// request was not limited, SetCost does nothing. It is safe for concurrent use.
func SetCost(ctx context.Context, units int64) {
	for m, _ := ctx.Value(meterKey{}).(*meter); m != nil; m = m.outer {
		m.reported.Store(&units)
	}
}

// meter holds what a handler reports to one Middleware.
type meter struct {
	reported atomic.Pointer[int64] // nil until SetCost
	outer    *meter                // the meter of the Middleware around this one
}

type meterKey struct{}

// settler is a Limiter that can settle a cost, such as a *window.Limiter.
type settler interface {
	Settle(ctx context.Context, event string, d window.Decision, actual int64) (window.Decision, error)
}

// checkSettles returns an error if costs are to be settled, and the limiter has no Settle.
func (cfg *Config) checkSettles(l Limiter) error {
	if _, ok := l.(settler); cfg.CostAfter != nil && !ok {
		return fmt.Errorf("slidegate: httplimit has a CostAfter, but a Limiter without Settle, a %T; "+
			"use a *window.Limiter, or give yours a Settle method that calls that of a *window.Limiter", l)
	}
	return nil
}

// served is an allowed request, which is settled when its handler is done.
type served struct {
	request  *http.Request
	limiter  Limiter
	key      string
	decision window.Decision
	response response
	meter    meter
	returned bool // the handler returned, and did not panic
}

// metered returns the request with a context for SetCost.
func (s *served) metered() *http.Request {
	ctx := s.request.Context()
	s.meter.outer, _ = ctx.Value(meterKey{}).(*meter)
	return s.request.WithContext(context.WithValue(ctx, meterKey{}, &s.meter))
}

// used returns what the request has used.
func (s *served) used() Used {
	u := Used{Units: s.decision.Counted, Bytes: s.response.bytes.Load()}
	if reported := s.meter.reported.Load(); reported != nil {
		u.Units = *reported
	}
	if s.request.Method == http.MethodHead { // net/http drops the body
		u.Bytes = 0
	}
	return u
}

// finish refunds a request that does not count, and settles any other.
func (m *Middleware) finish(s *served) {
	switch {
	case !m.counts(s):
		m.refund(s)
	case m.cfg.CostAfter != nil:
		m.settle(s)
	}
}

// counts reports whether a request counts.
func (m *Middleware) counts(s *served) bool {
	return m.cfg.CountOnly == nil || !s.returned || s.request.Context().Err() != nil || m.cfg.CountOnly(s.response.finalStatus())
}

// refund gives back the units of a request that does not count.
func (m *Middleware) refund(s *served) {
	ctx, cancel := calls.Finish(s.request.Context())
	defer cancel()
	if err := s.limiter.Refund(ctx, s.key, s.decision); err != nil {
		m.cfg.Log.Warn("slidegate: a request that does not count stays counted, because its refund failed", "err", err)
	}
}

// settle corrects the estimate. A handler that panicked may have used more than it reported, so
// nothing is refunded.
func (m *Middleware) settle(s *served) {
	actual, estimate := m.cfg.CostAfter(s.used()), s.decision.Counted
	if !s.returned {
		actual = max(actual, estimate)
	}
	if actual < 0 {
		m.cfg.Log.Error("slidegate: CostAfter returned a negative cost; the estimate stands", "estimate", estimate, "actual", actual)
		return
	}
	ctx, cancel := calls.Finish(s.request.Context())
	defer cancel()
	if _, err := s.limiter.(settler).Settle(ctx, s.key, s.decision, actual); err != nil {
		m.cfg.Log.Warn("slidegate: the cost of a request could not be settled; its estimate may stand", "estimate", estimate, "actual", actual, "err", err)
	}
}
