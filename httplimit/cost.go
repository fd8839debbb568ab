package httplimit

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/felixge/httpsnoop"

	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/window"
)

// Used represents what a request has used by the time its handler returns. Config.CostAfter
// receives it. Some costs are known only to the handler, such as tokens. The middleware measures
// others, such as bytes.
type Used struct {
	// Units is the cost that the handler last reported with SetCost. If the handler reported none,
	// Units is the estimate that was charged.
	Units int64

	// Bytes is the number of bytes of the response body that the handler wrote. It excludes
	// headers, and anything written to a hijacked connection. For a HEAD request it is 0.
	Bytes int64
}

// SetCost reports the cost in units of the request whose context is ctx. Call it in the handler
// with the request's context, before the handler returns. The last call counts.
//
// The cost is reported to each Middleware that wraps the handler and has a CostAfter. If there is
// none, or if the request was not limited, SetCost does nothing. It is safe for concurrent use.
func SetCost(ctx context.Context, units int64) {
	for m, _ := ctx.Value(meterKey{}).(*meter); m != nil; m = m.outer {
		m.reported.Store(&units)
	}
}

// meter holds the cost that a handler reports to one Middleware.
type meter struct {
	reported atomic.Pointer[int64] // nil until SetCost is called
	outer    *meter                // the meter of the Middleware around this one
}

type meterKey struct{}

// settler is a Limiter that can settle a cost, such as a *window.Limiter.
type settler interface {
	Settle(ctx context.Context, event string, d window.Decision, actual int64) (window.Decision, error)
}

// checkSettles returns an error if CostAfter is set but l has no Settle method.
func (cfg *Config) checkSettles(l Limiter) error {
	if _, ok := l.(settler); cfg.CostAfter != nil && !ok {
		return fmt.Errorf("slidegate: httplimit has a CostAfter, but a Limiter without Settle, a %T; "+
			"use a *window.Limiter, or give yours a Settle method that calls that of a *window.Limiter", l)
	}
	return nil
}

// served is an allowed request. It is refunded or settled, if necessary, when its handler is done.
type served struct {
	request  *http.Request
	limiter  Limiter
	key      string
	decision window.Decision
	response response
	meter    meter
	returned bool // the handler returned, and did not panic
}

// serve runs the handler. When next returns, it gives the units back if the response does not
// count, or settles the cost.
func (m *Middleware) serve(w http.ResponseWriter, s *served, next http.Handler) {
	r := s.request
	defer m.finish(s)
	if m.cfg.CostAfter != nil { // the context carries the meter for SetCost
		ctx := r.Context()
		s.meter.outer, _ = ctx.Value(meterKey{}).(*meter)
		r = r.WithContext(context.WithValue(ctx, meterKey{}, &s.meter))
		defer handBack(s.request, r)
	}
	next.ServeHTTP(httpsnoop.Wrap(w, s.response.hooks()), r)
	s.returned = true
}

// used returns the Used to pass to CostAfter.
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

// finish refunds a request that does not count, as Config.CountOnly defines. If CostAfter is set,
// it settles any other request.
func (m *Middleware) finish(s *served) {
	if m.cfg.CountOnly == nil || !s.returned || s.request.Context().Err() != nil || m.cfg.CountOnly(s.response.finalStatus()) {
		if m.cfg.CostAfter != nil {
			m.settle(s)
		}
		return
	}
	ctx, cancel := calls.Finish(s.request.Context())
	defer cancel()
	if err := s.limiter.Refund(ctx, s.key, s.decision); err != nil {
		m.cfg.Log.Warn("slidegate: a request that does not count stays counted, because its refund failed", "err", err)
	}
}

// settle replaces the estimate with the actual cost. A handler that panicked may have used more
// than it reported, so in this case nothing is refunded.
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
