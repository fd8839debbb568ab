// Package httplimit provides rate limiting middleware for net/http. It uses a distributed rate
// limiter in Redis, or a rate limiter in memory. A client that sends too many requests gets HTTP
// 429 with Retry-After. The RateLimit header fields of the IETF draft show clients their limits,
// and how much of them is left.
//
//	conn := window.Dial("redis://127.0.0.1:6379")
//	limiter, err := window.New(conn, window.Config{
//		Name:   "api",
//		Limits: []window.Limit{window.Every(5 * time.Second), window.PerHour(100)},
//	})
//	...
//	limit, err := httplimit.New(httplimit.Config{
//		Limiter: limiter,                 // the limits, and where the counts are
//		Key:     httplimit.Clients{}.Key, // who is limited: here each IP address
//		Outage:  httplimit.FailOpen,      // what to do while Redis does not answer
//	})
//	...
//	http.ListenAndServe(addr, limit.Wrap(mux))
//
// Set Choose instead of Limiter if each plan has its own limiter, or Checks if several limiters
// decide together. NewStatus shows callers how much they have left.
//
// Wrap takes and returns an http.Handler, so it works with any router. The zero Clients identifies a
// client by the IP address of its connection. Behind a proxy or load balancer, use ClientsBehind
// with the proxies that you run, or another Clients. Never use a header that clients can set.
//
// InFlight limits how many requests run at the same time. NewTransport paces the requests that a
// fleet sends to another service.
//
// The header fields are RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-11)
// and Retry-After (RFC 9110). The body is problem details (RFC 9457). For examples, the proxies of
// cloud platforms, and outages, see https://github.com/slidegate/slidegate/blob/main/docs/http.md.
package httplimit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/slidegate/slidegate/internal/adapter"
	"github.com/slidegate/slidegate/window"
)

// Limiter decides whether to allow requests. *window.Limiter and *ar1.Limiter implement it.
// Config.CostAfter also needs a Settle method, which *window.Limiter has and *ar1.Limiter does not.
type Limiter interface {
	// AllowN decides whether to allow a request that costs n units; n is at least 1. The event is
	// the key of the request. If the error matches window.ErrExceedsLimit, the response is HTTP
	// 413. Any other error counts as an outage.
	AllowN(ctx context.Context, event string, n int64) (window.Decision, error)
	// Refund gives back the units that d counted. It is called for responses that do not count, so
	// only if Config.CountOnly is set.
	Refund(ctx context.Context, event string, d window.Decision) error
}

// Outage selects what happens to requests while the limiter does not answer. If the limiter has a
// Fallback, the Fallback decides, and Outage applies only if the Fallback fails too.
type Outage string

const (
	// FailOpen allows all requests in an outage, without any limit.
	FailOpen Outage = "open"

	// FailClosed refuses requests in an outage, with HTTP 503.
	FailClosed Outage = "closed"
)

// Config configures a Middleware. Outage is required, and so is exactly one of Limiter, Choose and
// Checks. Limiter and Choose also need a Key. For more on each field, see
// https://github.com/slidegate/slidegate/blob/main/docs/http.md.
type Config struct {
	// Limiter decides whether to allow requests. It defines the limits, the clock and the Fallback,
	// and keeps the counts.
	Limiter Limiter

	// Choose returns the Limiter for a request, such as the one for the customer's plan. It can
	// return Unlimited or Blocked. An error counts as an outage. So does a nil Limiter without an
	// error, a mistake that is logged. See
	// https://github.com/slidegate/slidegate/blob/main/docs/http.md#plans.
	Choose func(*http.Request) (Limiter, error)

	// Checks returns the checks to pass to window.AllowAll for a request: all of them are counted,
	// or none. It replaces Limiter, Key and Cost, and cannot be combined with CountOnly or
	// CostAfter. If it returns no checks, the request is not limited. If a check has an empty
	// Event, the request is refused with HTTP 400. See
	// https://github.com/slidegate/slidegate/blob/main/docs/http.md#several-limiters.
	Checks func(*http.Request) []window.Check

	// Key returns who is limited: requests with the same key share their limits.
	Key Key

	// Outage is FailOpen or FailClosed. It has no default, because either choice can do harm.
	Outage Outage

	// Skip reports whether a request is exempt from the limits, such as a health check. If so, no
	// other function in Config is called. nil means that every request is limited.
	Skip func(*http.Request) bool

	// Cost returns how many units a request costs; nil means 1. A request that costs 0 is not
	// limited. A request is refused with HTTP 400 if its cost is negative, and with HTTP 413 if its
	// cost is more than a limit can ever allow.
	Cost func(*http.Request) int64

	// CountOnly reports whether a response with the given status counts. The units are charged
	// before the handler runs, and given back afterwards if CountOnly returns false. A request
	// always counts if its handler panics, or if its context is done before the handler returns.
	// nil means that every response counts. See
	// https://github.com/slidegate/slidegate/blob/main/docs/http.md#only-some-responses.
	CountOnly func(status int) bool

	// CostAfter returns the actual cost once the handler is done, such as tokens (Used.Units, from
	// SetCost) or bytes sent (Used.Bytes). Cost is then an estimate that is charged up front. The
	// difference is given back, or charged even beyond Max. If CostAfter returns less than 0, the
	// estimate stands. CostAfter needs a Limiter that has Settle. See
	// https://github.com/slidegate/slidegate/blob/main/docs/http.md#a-cost-that-is-known-afterwards.
	CostAfter func(Used) int64

	// Denied writes the response to a denied request. The rate limit headers are already set, and
	// Denied must write the status. nil means HTTP 429 with problem details, or HTTP 403 if the
	// limiter is Blocked. With Checks, d has the limits of all checks and the longest RetryAfter.
	Denied func(w http.ResponseWriter, r *http.Request, d window.Decision)

	// LegacyHeaders adds X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset for older
	// clients. They describe one limit: the one with the longest wait or, if no limit requires a
	// wait, the one with the least remaining. As in GitHub's API, Reset is a Unix time in seconds.
	// It is the time when another such request would be allowed, rounded up.
	LegacyHeaders bool

	// Shadow lets every request reach the handler, so that limits can be tried out in production.
	// The limiter decides and counts as usual, but clients see no headers and no refusals. For each
	// reason, the log reports at most once a minute how many requests would have been refused.
	Shadow bool

	// Log receives a line when an outage, or the use of a Fallback, starts or ends. The line states
	// the cause, but no request's key. Log also receives the first request without a key (with the
	// reason), each mistake by Choose, and charges that could not be given back or settled. Lines
	// about an outage carry the Limiter's Name as the attribute "limiter". nil means
	// slog.Default().
	Log *slog.Logger
}

// Middleware limits requests. Create it with New, and use Wrap. It is safe for concurrent use.
type Middleware struct {
	cfg      Config
	outages  adapter.Outages
	policies policies
	keyless  adapter.Keyless
	shadow   shadow
}

// New returns a Middleware. It returns an error if a required field is missing, if fields conflict,
// if Outage is neither FailOpen nor FailClosed, or if CostAfter is set and the Limiter has no
// Settle.
func New(cfg Config) (*Middleware, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Checks != nil {
		cfg.Key = func(r *http.Request) string { // serves only to log why a request has no key
			cfg.Checks(r)
			return adapter.NoteKeyless(r.Context(), "a check has an empty Event")
		}
	}
	return &Middleware{
		cfg:     cfg,
		outages: adapter.Outages{Outage: string(cfg.Outage), Request: "request", Log: cfg.Log},
		shadow:  shadow{kinds: map[string]refusals{}},
	}, nil
}

// Wrap returns a handler that limits the requests to next. Allowed requests reach next unchanged,
// with the server's own ResponseWriter. There are two exceptions. With CountOnly or CostAfter, the
// ResponseWriter is wrapped to observe the status and count bytes; it supports the same interfaces
// as the original. With CostAfter, the request's context carries a value for SetCost. Wrap panics
// if next is nil, or if m was not created with New.
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
		return
	case n == 0:
		next.ServeHTTP(w, r)
		return
	}
	key := m.cfg.Key(r)
	if key == "" {
		m.refuseKeyless(w, r, next)
		return
	}
	limiter, err := m.cfg.limiter(r)
	var d window.Decision
	if err == nil {
		d, err = limiter.AllowN(r.Context(), key, n)
	}
	if err != nil {
		m.fail(w, r, err, next)
		return
	}
	if !adapter.IsConstant(limiter) {
		m.outages.Record(d.Degraded, d.Cause)
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

// refuse responds with the problem p. In Shadow, it lets the request pass instead.
func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, p adapter.Problem, next http.Handler) {
	if m.cfg.Shadow {
		m.shadow.log(m.cfg.Log, p)
		next.ServeHTTP(w, r)
		return
	}
	writeProblem(w, p)
}

// refuseKeyless refuses a request without a key. For the first such request it logs the reason,
// which the client does not see.
func (m *Middleware) refuseKeyless(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !m.cfg.Shadow {
		m.cfg.Key.logKeyless(&m.keyless, m.cfg.Log, r)
	}
	m.refuse(w, r, problemNoKey, next)
}

// deny writes the response to a denied request.
func (m *Middleware) deny(w http.ResponseWriter, r *http.Request, v verdict, next http.Handler) {
	if m.cfg.Denied != nil && !m.cfg.Shadow {
		m.cfg.Denied(w, r, v.Decision)
		return
	}
	m.refuse(w, r, m.problemOf(v), next)
}

// handBack copies to r the fields that handlers have set in inner, the copy that was passed to
// them: the form, whose files the server removes, and the pattern, which outer handlers may read.
func handBack(r, inner *http.Request) {
	r.MultipartForm, r.Pattern = inner.MultipartForm, inner.Pattern
}

// fail handles a request for which the limiter returned an error.
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
	case m.outages.Fail(err):
		next.ServeHTTP(w, r)
	default:
		m.refuse(w, r, problemOutage, next)
	}
}
