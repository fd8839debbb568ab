// Package httplimit is rate limiting middleware for net/http, over a distributed rate limiter on
// Redis or one in memory. A client that sends too many requests gets HTTP 429 with Retry-After. The
// RateLimit header fields of the IETF draft show clients their limits, and what is left.
//
//	conn := window.Dial("redis://127.0.0.1:6379")
//	limiter, err := window.New(conn, window.Config{
//		Name:   "api",
//		Limits: []window.Limit{window.Every(5 * time.Second), window.PerHour(100)},
//	})
//	...
//	limit, err := httplimit.New(httplimit.Config{
//		Limiter: limiter,           // the limits, and where the counts are
//		Key:     httplimit.Address, // who is limited: here each IP address
//		Outage:  httplimit.FailOpen,    // what to do while Redis does not answer
//	})
//	...
//	http.ListenAndServe(addr, limit.Wrap(mux))
//
// Wrap takes and returns an http.Handler, so it works with any router. Address is the IP address of
// the connection. Behind a proxy or load balancer, use AddressBehind with the proxies that you run,
// or other Clients. Never use a header that clients can write.
//
// The header fields are RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-11)
// and Retry-After (RFC 9110). The body is problem details (RFC 9457). Examples, the proxies of
// cloud platforms and outages are explained in
// https://github.com/slidegate/slidegate/blob/main/docs/http.md.
package httplimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/felixge/httpsnoop"

	"github.com/slidegate/slidegate/internal/isnil"
	"github.com/slidegate/slidegate/internal/journal"
	"github.com/slidegate/slidegate/internal/problem"
	"github.com/slidegate/slidegate/window"
)

// Limiter decides about requests. *window.Limiter and *ar1.Limiter are Limiters. Config.CostAfter
// also needs a method Settle, which *window.Limiter has and *ar1.Limiter does not have.
type Limiter interface {
	// AllowN decides about a request that costs n units, at least 1. The event is the Key of the
	// request. An error that matches window.ErrExceedsLimit is answered with HTTP 413. Any other
	// error counts as an outage.
	AllowN(ctx context.Context, event string, n int64) (window.Decision, error)
	// Refund gives back what d counted, if the response does not count. It is called only with
	// Config.CountOnly.
	Refund(ctx context.Context, event string, d window.Decision) error
}

// Outage sets what happens to requests while the limiter does not answer. If the limiter has a
// Fallback, that decides, and Outage is used only if the Fallback does not answer either.
type Outage string

const (
	// FailOpen admits requests in an outage, without any limit.
	FailOpen Outage = "open"

	// FailClosed refuses requests in an outage, with HTTP 503.
	FailClosed Outage = "closed"
)

// Config sets what is limited, and how. Limiter, Key and Outage are required. More about each field
// is in https://github.com/slidegate/slidegate/blob/main/docs/http.md.
type Config struct {
	// Limiter decides about requests. It has the limits, the counts, the clock and the Fallback.
	Limiter Limiter

	// Key returns who is limited: requests with the same key share their limits.
	Key Key

	// Outage is FailOpen or FailClosed. It has no default, because either can do damage.
	Outage Outage

	// Cost returns how many units a request costs; nil means 1. A cost of 0 is not limited. A
	// negative cost is refused with HTTP 400, and one that exceeds what a limit ever admits with
	// HTTP 413.
	Cost func(*http.Request) int64

	// CountOnly reports whether a response counts, by its status. The units are charged before the
	// handler runs, and given back after it if CountOnly returns false. A handler that panics
	// counts, and so does a request whose context has ended. nil counts every response. See
	// https://github.com/slidegate/slidegate/blob/main/docs/http.md#only-some-responses.
	CountOnly func(status int) bool

	// CostAfter returns the actual cost once the handler is done, such as tokens (Used.Units, by
	// SetCost) or bytes sent (Used.Bytes). Cost is then an estimate that is charged before. The
	// difference is given back, or charged even above Max. If CostAfter returns less than 0, the
	// estimate stands. It needs a Limiter with Settle. See
	// https://github.com/slidegate/slidegate/blob/main/docs/http.md#a-cost-that-is-known-afterwards.
	CostAfter func(Used) int64

	// Denied answers a denied request. The headers are already set, and it must write the status.
	// nil is HTTP 429 with problem details.
	Denied func(w http.ResponseWriter, r *http.Request, d window.Decision)

	// LegacyHeaders adds X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset for older
	// clients, about one limit: the one with the longest wait, or else with the least remaining.
	// Reset is when such a request would be admitted again, in seconds since 1970 as GitHub sends
	// it, rounded up.
	LegacyHeaders bool

	// Shadow lets every request reach the handler, to try limits in production. The limiter decides
	// and counts as usual, but clients see no headers and no refusals. The log reports at most once
	// a minute how many requests would have been refused, for each reason.
	Shadow bool

	// Log receives the start and end of outages, and of decisions by a Fallback, with the cause but
	// without the key of a request. It also receives the first request without a key, with the
	// reason, and charges that could not be given back or settled. Its attributes distinguish
	// middlewares, as in slog.Default().With("limit", "api"). nil is slog.Default().
	Log *slog.Logger
}

// Middleware limits requests. Make it with New, and use Wrap. It is safe for concurrent use.
type Middleware struct {
	cfg         Config
	settler     settler // the Limiter, if it has Settle
	outages     journal.Journal
	policy      atomic.Pointer[policyText]
	keylessOnce sync.Once // logs the first request without a key
	shadow      shadow
}

// New returns a middleware. It returns an error if Limiter, Key or Outage is missing, if Outage is
// neither FailOpen nor FailClosed, or if CostAfter is set and the Limiter has no Settle.
func New(cfg Config) (*Middleware, error) {
	switch {
	case isnil.Value(cfg.Limiter):
		return nil, errors.New("slidegate: httplimit has no Limiter; make one by window.New or ar1.New")
	case cfg.Key == nil:
		return nil, errNoKey
	case cfg.Outage != FailOpen && cfg.Outage != FailClosed:
		return nil, fmt.Errorf("slidegate: httplimit has the Outage %q; choose %q to admit requests while the limiter gives no answer, or %q to refuse them", cfg.Outage, FailOpen, FailClosed)
	}
	settler, err := settlerFor(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Middleware{cfg: cfg, settler: settler, shadow: shadow{kinds: map[string]refusals{}}}, nil
}

var errNoKey = errors.New("slidegate: httplimit has no Key, which says who is limited; take httplimit.Address, or AddressBehind if there is a proxy. " +
	"The Key is also nil if Header or Cookie got an empty or invalid name, or And or Or a nil Key")

// Wrap returns a handler that limits the requests to next. Admitted requests reach next unchanged,
// with the server's own ResponseWriter. There are two exceptions. With CountOnly or CostAfter, the
// ResponseWriter is wrapped to see status and bytes, and can do the same. With CostAfter, the
// context of the request carries what SetCost needs. Wrap panics if next is nil, or m does not come
// from New.
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
			m.refuse(w, r, problemNoCost, next)
		case n == 0:
			next.ServeHTTP(w, r)
		default:
			m.limit(w, r, n, next)
		}
	})
}

// limit asks the limiter about a request that costs n units.
func (m *Middleware) limit(w http.ResponseWriter, r *http.Request, n int64, next http.Handler) {
	key := m.cfg.Key(r)
	if key == "" {
		m.refuseKeyless(w, r, next)
		return
	}
	d, err := m.cfg.Limiter.AllowN(r.Context(), key, n)
	if err != nil {
		m.fail(w, r, err, next)
		return
	}
	m.outages.Note(m.cfg.Log, string(m.cfg.Outage), d.Degraded, d.Cause)
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

// refuseKeyless refuses a request without a key. It logs the first one, with what the Key found.
// The client does not learn that.
func (m *Middleware) refuseKeyless(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !m.cfg.Shadow {
		m.keylessOnce.Do(func() {
			m.cfg.Log.Warn("slidegate: requests without a key are refused; only the first is logged", "reason", m.cfg.Key.explain(r).String())
		})
	}
	m.refuse(w, r, problemNoKey, next)
}

// deny answers a denied request.
func (m *Middleware) deny(w http.ResponseWriter, r *http.Request, d window.Decision, next http.Handler) {
	if m.cfg.Denied != nil && !m.cfg.Shadow {
		m.cfg.Denied(w, r, d)
		return
	}
	m.refuse(w, r, problemDenied(d), next)
}

// serve runs the handler. Afterwards it gives the units back if the response does not count, or
// settles the cost.
func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, key string, d window.Decision, next http.Handler) {
	s := served{request: r, key: key, decision: d}
	defer m.finish(&s)
	if m.cfg.CostAfter != nil {
		r = s.metered()
		defer func() { s.request.MultipartForm = r.MultipartForm }() // so that the server removes the form's files
	}
	next.ServeHTTP(httpsnoop.Wrap(w, s.response.hooks()), r)
	s.returned = true
}

// fail answers a request that the limiter could not decide about.
func (m *Middleware) fail(w http.ResponseWriter, r *http.Request, err error, next http.Handler) {
	switch {
	case errors.Is(r.Context().Err(), context.Canceled): // the client has gone, so this is not an outage
		m.refuse(w, r, problemOutage, next)
	case errors.Is(err, window.ErrExceedsLimit):
		m.refuse(w, r, problemTooCostly, next)
	default:
		m.logFailure(err)
		m.undecided(w, r, next)
	}
}

// logFailure logs the begin of an outage once, and an error of a single key each time.
func (m *Middleware) logFailure(err error) {
	if errors.Is(err, window.ErrOutage) || errors.Is(err, window.ErrUncertain) || errors.Is(err, context.DeadlineExceeded) {
		m.outages.Note(m.cfg.Log, string(m.cfg.Outage), false, err)
		return
	}
	m.cfg.Log.Error("slidegate: the limiter cannot decide about a request", "outage", m.cfg.Outage, "err", err)
}

// undecided admits or refuses a request in an outage.
func (m *Middleware) undecided(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if m.cfg.Outage == FailOpen {
		next.ServeHTTP(w, r)
		return
	}
	m.refuse(w, r, problemOutage, next)
}
