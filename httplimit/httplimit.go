// Package httplimit limits HTTP requests: net/http middleware over a limiter of window or ar1, with the fields RateLimit-Policy, RateLimit and Retry-After
// (draft-ietf-httpapi-ratelimit-headers-11, RFC 9110) and problem details (RFC 9457).
//
//	limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: httplimit.Address, Outage: httplimit.Open})
//	...
//	http.ListenAndServe(addr, limit.Wrap(mux))
//
// Only the Key says who is limited. Address takes the address of the connection; behind a proxy that is the proxy, so there use
// AddressBehind with the proxies that you run, and never a field that clients can write. docs/http.md has examples.
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
	"time"

	"github.com/felixge/httpsnoop"

	"github.com/slidegate/slidegate/window"
)

// Limiter decides about requests: a *window.Limiter, or an *ar1.Limiter.
type Limiter interface {
	// AllowN decides about a request that costs n units, at least 1. Any error is taken for an outage, but for one that matches
	// window.ErrExceedsLimit, which is answered by 413.
	AllowN(ctx context.Context, event string, n int64) (window.Decision, error)
	// Refund gives back what d counted, for a response that does not count. It is called only with Config.CountOnly.
	Refund(ctx context.Context, event string, d window.Decision) error
}

// Outage is what becomes of requests while the limiter can give no answer.
type Outage string

// What to do in an outage. A limiter with a Fallback decides by that, and comes to this only if the Fallback gives no answer either.
const (
	Open   Outage = "open"   // they are admitted, without any limit
	Closed Outage = "closed" // they are refused, with the status 503
)

// Config says what is limited, and how. Limiter, Key and Outage are needed.
type Config struct {
	Limiter Limiter // decides: limits, counts, clock and Fallback are its own
	Key     Key     // who is limited
	Outage  Outage  // what to do in an outage: there is no default, as either can hurt

	// Cost is how many units a request costs; nil is 1 for each. One of 0 is not limited. One of less is refused with the status 400, and one of
	// more than a limit ever admits with 413.
	Cost func(*http.Request) int64

	// CountOnly, if set, says which responses count, by their status: those that do not get their units back when the handler is done. They are
	// charged before all the same, so that requests at once cannot slip past. A handler that panics is counted, and so is a request whose context
	// ends before its handler does: else whoever hangs up would try for nothing. One that writes nothing answers with 200, one that takes over the
	// connection with 101.
	CountOnly func(status int) bool

	// Denied, if set, answers a denied request. The fields are set already; it must write the status. nil is 429 with problem details.
	Denied func(w http.ResponseWriter, r *http.Request, d window.Decision)

	// Log is told of the begin and the end of outages, and of a Fallback's decisions, each once; of the first request without a key; and of charges that could not
	// be given back. Its attributes tell one middleware from another, as by slog.Default().With("limit", "api"). nil is slog.Default().
	Log *slog.Logger
}

// Middleware limits requests. It comes from New, and is safe for concurrent use.
type Middleware struct {
	cfg     Config
	state   journal
	policy  atomic.Pointer[policyText]
	keyless sync.Once // told of
}

// New returns a middleware. It is an error where Limiter, Key or Outage is missing, or Outage is neither Open nor Closed.
func New(cfg Config) (*Middleware, error) {
	switch {
	case cfg.Limiter == nil || reflect.ValueOf(cfg.Limiter).Kind() == reflect.Pointer && reflect.ValueOf(cfg.Limiter).IsNil():
		return nil, errors.New("slidegate: httplimit has no Limiter; make one by window.New or ar1.New")
	case cfg.Key == nil:
		return nil, errors.New("slidegate: httplimit has no Key, which says who is limited; take httplimit.Address, or AddressBehind if there is a proxy")
	case cfg.Outage != Open && cfg.Outage != Closed:
		return nil, fmt.Errorf("slidegate: httplimit has the Outage %q; choose %q to admit requests while the limiter gives no answer, or %q to refuse them", cfg.Outage, Open, Closed)
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Middleware{cfg: cfg}, nil
}

// Wrap limits the requests to a handler. Those that are admitted reach it as they came. Their w is the server's own, unless CountOnly is set:
// then it is one that sees the status, and can do whatever the server's can.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int64(1)
		if m.cfg.Cost != nil {
			n = m.cfg.Cost(r)
		}
		switch {
		case n < 0:
			writeProblem(w, noCost)
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
		m.keyless.Do(func() {
			m.cfg.Log.Warn("slidegate: requests without a key are refused; if all are, see what the Key needs, as Route must be within its mux")
		})
		writeProblem(w, noKey)
		return
	}
	d, err := m.cfg.Limiter.AllowN(r.Context(), key, n)
	if err != nil {
		m.fail(w, r, err, next)
		return
	}
	m.note(d.Degraded, nil)
	m.setFields(w.Header(), d)
	switch {
	case !d.Allowed:
		m.deny(w, r, d)
	case m.cfg.CountOnly != nil:
		m.serve(w, r, key, d, next)
	default:
		next.ServeHTTP(w, r)
	}
}

func (m *Middleware) deny(w http.ResponseWriter, r *http.Request, d window.Decision) {
	if m.cfg.Denied != nil {
		m.cfg.Denied(w, r, d)
		return
	}
	writeProblem(w, exceeded(d))
}

// serve gives the units back if the response does not count.
func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, key string, d window.Decision, next http.Handler) {
	var a answer
	next.ServeHTTP(httpsnoop.Wrap(w, a.hooks()), r)
	if r.Context().Err() != nil || m.cfg.CountOnly(a.code()) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), refundTime)
	defer cancel()
	if err := m.cfg.Limiter.Refund(ctx, key, d); err != nil {
		m.cfg.Log.Warn("slidegate: a request that does not count stays counted, as its refund failed", "err", err)
	}
}

// refundTime is how long a request waits for its units to be given back, at most.
const refundTime = 5 * time.Second

// fail answers a request that the limiter could not decide about.
func (m *Middleware) fail(w http.ResponseWriter, r *http.Request, err error, next http.Handler) {
	switch {
	case errors.Is(r.Context().Err(), context.Canceled): // the client is gone, which is no sign of an outage
		writeProblem(w, reduced)
	case errors.Is(err, window.ErrExceedsLimit):
		writeProblem(w, tooCostly)
	default:
		m.tell(err)
		m.undecided(w, r, next)
	}
}

// tell tells of an outage once, and of what is wrong with a single key each time.
func (m *Middleware) tell(err error) {
	if errors.Is(err, window.ErrOutage) || errors.Is(err, window.ErrUncertain) || errors.Is(err, context.DeadlineExceeded) {
		m.note(false, err)
		return
	}
	m.cfg.Log.Error("slidegate: the limiter cannot decide about a request", "outage", m.cfg.Outage, "err", err)
}

func (m *Middleware) undecided(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if m.cfg.Outage == Open {
		next.ServeHTTP(w, r)
		return
	}
	writeProblem(w, reduced)
}
