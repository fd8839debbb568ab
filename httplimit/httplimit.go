// Package httplimit limits HTTP requests. It is net/http middleware over a rate limiter of window or ar1. It sends the headers
// RateLimit-Policy, RateLimit and Retry-After (draft-ietf-httpapi-ratelimit-headers-11, RFC 9110) and problem details (RFC 9457).
//
//	limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: httplimit.Address, Outage: httplimit.Open})
//	...
//	http.ListenAndServe(addr, limit.Wrap(mux))
//
// Only the Key says who is limited. Address takes the IP address of the connection. Behind a proxy that is the proxy's: use AddressBehind
// with the proxies that you run, or other Clients, and never a header that clients can write. docs/http.md has examples.
package httplimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/felixge/httpsnoop"

	"github.com/slidegate/slidegate/internal/journal"
	"github.com/slidegate/slidegate/internal/problem"
	"github.com/slidegate/slidegate/window"
)

// Limiter decides about requests: a *window.Limiter or an *ar1.Limiter. Config.CostAfter also needs a method Settle, as *window.Limiter has.
// *ar1.Limiter has none.
type Limiter interface {
	// AllowN decides about a request that costs n units, at least 1. An error that matches window.ErrExceedsLimit is answered by 413. Any
	// other error counts as an outage.
	AllowN(ctx context.Context, event string, n int64) (window.Decision, error)
	// Refund gives back what d counted, for a response that does not count. It is called only with Config.CountOnly.
	Refund(ctx context.Context, event string, d window.Decision) error
}

// Outage is what happens to requests while the limiter can give no answer.
type Outage string

// What to do in an outage. A limiter with a Fallback decides by that, and needs this only if the Fallback gives no answer either.
const (
	Open   Outage = "open"   // they are admitted, without any limit
	Closed Outage = "closed" // they are refused, with the status 503
)

// Config says what is limited, and how. Limiter, Key and Outage are required.
type Config struct {
	Limiter Limiter // decides: limits, counts, clock and Fallback are its own
	Key     Key     // who is limited
	Outage  Outage  // what to do in an outage: there is no default, as either can hurt

	// Cost returns how many units a request costs; nil is 1 for each. A cost of 0 is not limited. A negative cost is refused with the status
	// 400. One that exceeds what a limit ever admits is refused with 413.
	Cost func(*http.Request) int64

	// CountOnly, if set, reports whether a response counts, by its status. If not, its units are given back when the handler is done. They
	// are charged before it runs all the same, so that requests at once cannot slip past. A handler that panics is counted. So is a request
	// whose context ends before its handler does, or a client could hang up and try for nothing. A handler that writes nothing answers with
	// 200, one that takes over the connection with 101.
	CountOnly func(status int) bool

	// CostAfter, if set, returns what an admitted request has cost, once its handler is done. Use it for tokens of a language model, where the
	// handler calls SetCost and CostAfter returns Used.Units, or for bytes sent, where it returns Used.Bytes. Cost is then an estimate: it is
	// charged before the handler runs. Afterwards the difference is given back, or charged even above Max, also if the client has gone.
	//
	// The estimate stands if CostAfter returns less than 0. A handler that panics is charged at least the estimate. A response that does not
	// count by CountOnly costs nothing. Requests with an estimate of 0, and those admitted in an outage, are not limited and so not settled.
	// The headers are about the estimate. CostAfter needs a Limiter with Settle, such as a *window.Limiter.
	CostAfter func(Used) int64

	// Denied, if set, answers a denied request. The headers are set already; it must write the status. nil is 429 with problem details.
	Denied func(w http.ResponseWriter, r *http.Request, d window.Decision)

	// LegacyHeaders adds X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, for clients that read only these. They are about
	// one limit: the one with the longest wait, or if a request like this would be admitted again at once, the one with the least remaining.
	// Reset is when such a request is admitted again, in seconds since 1970 as GitHub sends it, rounded up.
	LegacyHeaders bool

	// Shadow lets every request reach the handler, to try out limits in production. The limiter decides and counts as usual. Clients see no
	// headers, Denied is not called, and requests without a key or in an outage pass, too. The log reports how many requests would have been
	// refused, at most once a minute for each reason. For metrics, window.Config.Observe sees each denial. CountOnly and CostAfter apply to
	// requests that the limiter admits.
	Shadow bool

	// Log gets a line at the begin and at the end of an outage, and of the time in which a Fallback decides. It also gets the first request
	// without a key, and charges that could not be given back or settled. Its attributes distinguish middlewares, as in slog.Default().With("limit",
	// "api"). nil is slog.Default().
	Log *slog.Logger
}

// Middleware limits requests. It comes from New, and is safe for concurrent use.
type Middleware struct {
	cfg     Config
	settler settler // the Limiter, if it is one
	state   journal.Journal
	policy  atomic.Pointer[policyText]
	keyless sync.Once // logged
	shadow  shadow
}

// New returns a middleware. It returns an error if Limiter, Key or Outage is missing, if Outage is neither Open nor Closed, or if CostAfter is
// set and the Limiter has no Settle.
func New(cfg Config) (*Middleware, error) {
	switch {
	case cfg.Limiter == nil || reflect.ValueOf(cfg.Limiter).Kind() == reflect.Pointer && reflect.ValueOf(cfg.Limiter).IsNil():
		return nil, errors.New("slidegate: httplimit has no Limiter; make one by window.New or ar1.New")
	case cfg.Key == nil:
		return nil, errNoKey
	case cfg.Outage != Open && cfg.Outage != Closed:
		return nil, fmt.Errorf("slidegate: httplimit has the Outage %q; choose %q to admit requests while the limiter gives no answer, or %q to refuse them", cfg.Outage, Open, Closed)
	}
	settler, err := settlerFor(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Middleware{cfg: cfg, settler: settler, shadow: shadow{kinds: map[string]passed{}}}, nil
}

var errNoKey = errors.New("slidegate: httplimit has no Key, which says who is limited; take httplimit.Address, or AddressBehind if there is a proxy. " +
	"Header and Cookie return no Key for an empty or invalid name, And and Or none for a nil Key: correct what they are given")

// Wrap limits the requests to a handler. Admitted requests reach it unchanged, except that with CostAfter their context serves SetCost. Their
// w is the server's own, unless CountOnly or CostAfter is set: then it is one that sees status and bytes, and can do whatever the server's
// can. Wrap panics if next is nil, or m does not come from New.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	switch {
	case m == nil || m.cfg.Limiter == nil:
		panic("slidegate: this Middleware is nil or zero; make it by httplimit.New")
	case next == nil:
		panic("slidegate: Wrap limits a nil handler; give it the one that serves the requests")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int64(1)
		if m.cfg.Cost != nil {
			n = m.cfg.Cost(r)
		}
		switch {
		case n < 0:
			m.refuse(w, r, noCost, next)
		case n == 0:
			next.ServeHTTP(w, r)
		default:
			m.limit(w, r, n, next)
		}
	})
}

func (m *Middleware) limit(w http.ResponseWriter, r *http.Request, n int64, next http.Handler) {
	key := m.cfg.Key(r)
	if key == "" {
		m.noKey(w, r, next)
		return
	}
	d, err := m.cfg.Limiter.AllowN(r.Context(), key, n)
	if err != nil {
		m.fail(w, r, err, next)
		return
	}
	m.state.Note(m.cfg.Log, string(m.cfg.Outage), d.Degraded, nil)
	m.setFields(w.Header(), d)
	switch {
	case !d.Allowed:
		m.deny(w, r, d, next)
	case m.cfg.CountOnly != nil || m.cfg.CostAfter != nil:
		m.serve(w, r, key, d, next)
	default:
		next.ServeHTTP(w, r)
	}
}

// refuse answers a request with a problem, or lets it pass in Shadow.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, p problem.Details, next http.Handler) {
	if m.cfg.Shadow {
		m.pass(w, r, p, next)
		return
	}
	writeProblem(w, p)
}

// noKey refuses a request without a key, and logs the first.
func (m *Middleware) noKey(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !m.cfg.Shadow {
		m.keyless.Do(func() {
			m.cfg.Log.Warn("slidegate: requests without a key are refused; if all are, see what the Key needs, as Route must be within its mux")
		})
	}
	m.refuse(w, r, noKey, next)
}

func (m *Middleware) deny(w http.ResponseWriter, r *http.Request, d window.Decision, next http.Handler) {
	if m.cfg.Denied != nil && !m.cfg.Shadow {
		m.cfg.Denied(w, r, d)
		return
	}
	m.refuse(w, r, exceeded(d), next)
}

// serve runs the handler. Once that is done, it gives the units back if the response does not count, or settles the cost.
func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, key string, d window.Decision, next http.Handler) {
	s := served{request: r, key: key, decision: d}
	defer m.finish(&s)
	if m.cfg.CostAfter != nil {
		r = s.metered()
		defer func() { s.request.MultipartForm = r.MultipartForm }() // whose files the server removes
	}
	next.ServeHTTP(httpsnoop.Wrap(w, s.answer.hooks()), r)
	s.returned = true
}

// fail answers a request that the limiter could not decide about.
func (m *Middleware) fail(w http.ResponseWriter, r *http.Request, err error, next http.Handler) {
	switch {
	case errors.Is(r.Context().Err(), context.Canceled): // the client is gone, which is no sign of an outage
		m.refuse(w, r, reduced, next)
	case errors.Is(err, window.ErrExceedsLimit):
		m.refuse(w, r, tooCostly, next)
	default:
		m.tell(err)
		m.undecided(w, r, next)
	}
}

// tell tells of an outage once, and of what is wrong with a single key each time.
func (m *Middleware) tell(err error) {
	if errors.Is(err, window.ErrOutage) || errors.Is(err, window.ErrUncertain) || errors.Is(err, context.DeadlineExceeded) {
		m.state.Note(m.cfg.Log, string(m.cfg.Outage), false, err)
		return
	}
	m.cfg.Log.Error("slidegate: the limiter cannot decide about a request", "outage", m.cfg.Outage, "err", err)
}

func (m *Middleware) undecided(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if m.cfg.Outage == Open {
		next.ServeHTTP(w, r)
		return
	}
	m.refuse(w, r, reduced, next)
}
