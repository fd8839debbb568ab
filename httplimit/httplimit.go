// Package httplimit is rate limiting middleware for net/http, on top of a distributed rate limiter
// in Redis, or one in memory. A client that sends too many requests gets HTTP 429 with Retry-After.
// The RateLimit header fields of the IETF draft show clients their limits, and how much is left.
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
// Choose replaces Limiter if plans have their own limiters, and Checks if several limiters decide
// together. Status shows callers how much they have left.
//
// Wrap takes and returns an http.Handler, so it works with any router. Address is the IP address of
// the connection. Behind a proxy or load balancer, use AddressBehind with the proxies that you run,
// or other Clients. Never use a header that clients can write.
//
// InFlight limits how many requests run at the same time. Transport paces the requests that a fleet
// sends to another service.
//
// The header fields are RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-11)
// and Retry-After (RFC 9110). The body is problem details (RFC 9457). Examples, the proxies of
// cloud platforms and outages are explained in
// https://github.com/slidegate/slidegate/blob/main/docs/http.md.
package httplimit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"

	"github.com/felixge/httpsnoop"

	"github.com/slidegate/slidegate/internal/constant"
	"github.com/slidegate/slidegate/internal/journal"
	"github.com/slidegate/slidegate/internal/keyless"
	"github.com/slidegate/slidegate/internal/problem"
	"github.com/slidegate/slidegate/window"
)

// Limiter decides on requests. *window.Limiter and *ar1.Limiter are Limiters. Config.CostAfter also
// needs a Settle method, which *window.Limiter has and *ar1.Limiter does not.
type Limiter interface {
	// AllowN decides on a request that costs n units, at least 1. The event is the Key of the request.
	// An error that matches window.ErrExceedsLimit is answered with HTTP 413. Any other error counts
	// as an outage.
	AllowN(ctx context.Context, event string, n int64) (window.Decision, error)
	// Refund gives back what d counted, if the response does not count. It is called only with
	// Config.CountOnly.
	Refund(ctx context.Context, event string, d window.Decision) error
}

// Outage sets what happens to requests while the limiter does not answer. If the limiter has a
// Fallback, that decides, and Outage is used only if the Fallback does not answer either.
type Outage string

const (
	// FailOpen allows all requests in an outage, without any limit.
	FailOpen Outage = "open"

	// FailClosed refuses requests in an outage, with HTTP 503.
	FailClosed Outage = "closed"
)

// Config sets what is limited, and how. Outage is required, and so is one of Limiter, Choose and
// Checks. Limiter and Choose also need a Key. Each field is explained in
// https://github.com/slidegate/slidegate/blob/main/docs/http.md.
type Config struct {
	// Limiter decides on requests. It has the limits, the counts, the clock and the Fallback.
	Limiter Limiter

	// Choose returns the Limiter for a request, such as that of the customer's plan. It can return
	// Unlimited and Blocked. An error counts as an outage, and so does a nil Limiter, which is a
	// mistake that the log reports. See
	// https://github.com/slidegate/slidegate/blob/main/docs/http.md#plans.
	Choose func(*http.Request) (Limiter, error)

	// Checks returns the checks that window.AllowAll decides for a request: all of them are counted,
	// or none. It replaces Limiter, Key and Cost, and cannot be combined with CountOnly or CostAfter.
	// A request without checks is not limited. One with an empty Event is refused with HTTP 400. See
	// https://github.com/slidegate/slidegate/blob/main/docs/http.md#several-limiters.
	Checks func(*http.Request) []window.Check

	// Key returns who is limited: requests with the same key share their limits.
	Key Key

	// Outage is FailOpen or FailClosed. It has no default, because either can do damage.
	Outage Outage

	// Skip reports whether to leave a request unlimited, such as a health check. No other function of
	// Config is then called. nil means that every request is limited.
	Skip func(*http.Request) bool

	// Cost returns how many units a request costs; nil means 1. A cost of 0 is not limited. A negative
	// cost is refused with HTTP 400, and one that exceeds what a limit ever allows with HTTP 413.
	Cost func(*http.Request) int64

	// CountOnly reports whether a response counts, by its status. The units are charged before the
	// handler runs, and given back after it if CountOnly returns false. A handler that panics counts,
	// and so does a request whose context has ended. nil means that every response counts. See
	// https://github.com/slidegate/slidegate/blob/main/docs/http.md#only-some-responses.
	CountOnly func(status int) bool

	// CostAfter returns the actual cost once the handler is done, such as tokens (Used.Units, by
	// SetCost) or bytes sent (Used.Bytes). Cost is then an estimate that is charged up front. The
	// difference is given back, or charged even above Max. If CostAfter returns less than 0, the
	// estimate stands. It needs a Limiter with Settle. See
	// https://github.com/slidegate/slidegate/blob/main/docs/http.md#a-cost-that-is-known-afterwards.
	CostAfter func(Used) int64

	// Denied answers a denied request. The headers are already set, and it must write the status. nil
	// means HTTP 429 with problem details, or HTTP 403 if the limiter is Blocked. With Checks, d has
	// the limits of all checks and the longest RetryAfter.
	Denied func(w http.ResponseWriter, r *http.Request, d window.Decision)

	// LegacyHeaders adds X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset for older
	// clients, about one limit: the one with the longest wait or, if there is no wait, with the least
	// remaining. Reset is when such a request would be allowed again, in seconds since 1970 as GitHub
	// sends it, rounded up.
	LegacyHeaders bool

	// Shadow lets every request reach the handler, to try limits in production. The limiter decides
	// and counts as usual, but clients see no headers and no refusals. The log reports at most once
	// a minute how many requests would have been refused, for each reason.
	Shadow bool

	// Log receives the start and end of outages, and of decisions by a Fallback, with the cause but
	// without the key of a request. It also receives the first request without a key, with the reason,
	// each mistake of Choose, and charges that could not be given back or settled. Lines about an
	// outage have the Name of the Limiter as the attribute "limiter". nil means slog.Default().
	Log *slog.Logger
}

// Middleware limits requests. Create it with New, and use Wrap. It is safe for concurrent use.
type Middleware struct {
	cfg         Config
	outages     journal.Journal
	policies    policies
	keylessOnce sync.Once // logs the first request without a key
	shadow      shadow
}

// New returns a middleware. It returns an error if a required field is missing, if fields conflict,
// if Outage is neither FailOpen nor FailClosed, or if CostAfter is set and the Limiter has no
// Settle.
func New(cfg Config) (*Middleware, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	return &Middleware{cfg: cfg, shadow: shadow{kinds: map[string]refusals{}}}, nil
}

// Wrap returns a handler that limits the requests to next. Allowed requests reach next unchanged,
// with the server's own ResponseWriter. There are two exceptions. With CountOnly or CostAfter, the
// ResponseWriter is wrapped to see status and bytes, and supports the same interfaces. With
// CostAfter, the context of the request carries what SetCost needs. Wrap panics if next is nil, or
// if m was not created with New.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	switch {
	case m == nil || m.cfg.Outage == "":
		panic("slidegate: this Middleware is nil or zero; create it with httplimit.New")
	case next == nil:
		panic("slidegate: Wrap got a nil handler; pass the one that serves the requests")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case m.cfg.Skip != nil && m.cfg.Skip(r):
			next.ServeHTTP(w, r)
		case m.cfg.Checks != nil:
			m.limitJointly(w, r, next)
		default:
			m.limit(w, r, next)
		}
	})
}

// limit limits a request by one limiter.
func (m *Middleware) limit(w http.ResponseWriter, r *http.Request, next http.Handler) {
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
		m.limitTo(w, r, n, next)
	}
}

// limitTo limits a request that costs n units by one limiter.
func (m *Middleware) limitTo(w http.ResponseWriter, r *http.Request, n int64, next http.Handler) {
	key := m.cfg.Key(r)
	if key == "" {
		m.refuseKeyless(w, r, next)
		return
	}
	limiter, d, err := m.decide(r, key, n)
	if err != nil {
		m.fail(w, r, err, next)
		return
	}
	v := verdict{Decision: d}
	m.setFields(w.Header(), v)
	switch {
	case !d.Allowed:
		m.deny(w, r, v, next)
	case m.cfg.CountOnly != nil || m.cfg.CostAfter != nil:
		m.serve(w, &served{request: r, limiter: limiter, key: key, decision: d}, next)
	default:
		next.ServeHTTP(w, r)
	}
}

// decide returns the limiter for a request, and its decision.
func (m *Middleware) decide(r *http.Request, key string, n int64) (limiter Limiter, d window.Decision, err error) {
	if limiter, err = m.cfg.limiter(r); err != nil {
		return nil, d, err
	}
	d, err = limiter.AllowN(r.Context(), key, n)
	if err == nil && !constant.Is(limiter) {
		m.outages.Note(m.cfg.Log, string(m.cfg.Outage), d.Degraded, d.Cause)
	}
	return limiter, d, err
}

// refuse answers a request with a problem, or lets it pass in Shadow.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, p problem.Details, next http.Handler) {
	if m.cfg.Shadow {
		m.pass(w, r, p, next)
		return
	}
	writeProblem(w, p)
}

// refuseKeyless refuses a request without a key. It logs the first one with the reason, which the
// client does not see.
func (m *Middleware) refuseKeyless(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !m.cfg.Shadow {
		m.keylessOnce.Do(func() {
			m.cfg.Log.Warn("slidegate: requests without a key are refused; only the first is logged", "reason", m.explain(r))
		})
	}
	m.refuse(w, r, problemNoKey, next)
}

// explain returns why a request has no key.
func (m *Middleware) explain(r *http.Request) string {
	key := m.cfg.Key
	if m.cfg.Checks != nil {
		key = func(r *http.Request) string {
			m.cfg.Checks(r)
			return keyless.Note(r.Context(), "a check has an empty Event")
		}
	}
	return key.explain(r).String()
}

// deny answers a denied request.
func (m *Middleware) deny(w http.ResponseWriter, r *http.Request, v verdict, next http.Handler) {
	if m.cfg.Denied != nil && !m.cfg.Shadow {
		m.cfg.Denied(w, r, v.Decision)
		return
	}
	m.refuse(w, r, m.problemOf(v), next)
}

// serve runs the handler. Afterwards it gives the units back if the response does not count, or
// settles the cost.
func (m *Middleware) serve(w http.ResponseWriter, s *served, next http.Handler) {
	r := s.request
	defer m.finish(s)
	if m.cfg.CostAfter != nil {
		r = s.metered()
		defer handBack(s.request, r)
	}
	next.ServeHTTP(httpsnoop.Wrap(w, s.response.hooks()), r)
	s.returned = true
}

// handBack copies into a request what handlers have set in its copy: the form, whose files the
// server removes, and the pattern, which outer handlers may read.
func handBack(r, inner *http.Request) {
	r.MultipartForm, r.Pattern = inner.MultipartForm, inner.Pattern
}

// fail answers a request on which the limiter could not decide.
func (m *Middleware) fail(w http.ResponseWriter, r *http.Request, err error, next http.Handler) {
	switch {
	case errors.Is(r.Context().Err(), context.Canceled): // the client has gone, so this is not an outage
		m.refuse(w, r, problemOutage, next)
	case errors.Is(err, window.ErrExceedsLimit):
		m.refuse(w, r, problemTooCostly, next)
	case errors.Is(err, window.ErrEmptyEvent):
		m.refuseKeyless(w, r, next)
	case errors.Is(err, window.ErrInvalidCost):
		m.refuse(w, r, problemNoCost, next)
	default:
		m.outages.Failed(m.cfg.Log, string(m.cfg.Outage), "request", err)
		m.undecided(w, r, next)
	}
}

// undecided allows or refuses a request in an outage.
func (m *Middleware) undecided(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if m.cfg.Outage == FailOpen {
		next.ServeHTTP(w, r)
		return
	}
	m.refuse(w, r, problemOutage, next)
}
