package httplimit

import (
	"bufio"
	"cmp"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/felixge/httpsnoop"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/adapter"
)

// InFlightConfig configures an InFlight. Places, Key and Outage are required.
type InFlightConfig struct {
	// Places limits how many requests with the same key may run at once, across all servers. Its
	// MaxHold must be at least as long as the longest request.
	Places *inflight.Limiter

	// Key returns who is limited: requests with the same key share the places.
	Key Key

	// Outage is FailOpen or FailClosed. It has no default, because either choice can do harm.
	Outage Outage

	// Wait is the longest that a request waits for a place before it is refused. 0 means that
	// requests do not wait.
	Wait time.Duration

	// Log receives a line when an outage starts or ends, with the cause, and a line for the first
	// request without a key. It states why a Fallback decides only if Wait is 0. nil means
	// slog.Default().
	Log *slog.Logger
}

// InFlight limits how many requests run at the same time. Create it with NewInFlight, and use Wrap.
// It is safe for concurrent use.
type InFlight struct {
	cfg         InFlightConfig
	gate        *adapter.Gate
	keylessOnce sync.Once // logs the first request without a key
}

// NewInFlight returns an InFlight. It returns an error if Places, Key or Outage is missing, if Wait
// is negative, or if Outage is neither FailOpen nor FailClosed.
func NewInFlight(cfg InFlightConfig) (*InFlight, error) {
	gate, err := adapter.NewGate("httplimit.InFlight", cfg.Places, cfg.Wait, string(cfg.Outage), cfg.Log)
	switch {
	case err != nil:
		return nil, err
	case cfg.Key == nil:
		return nil, errNoKey
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	return &InFlight{cfg: cfg, gate: gate}, nil
}

// Wrap returns a handler that calls next while holding a place. The place is released when next
// returns or panics. If next hijacks the connection, the place is held until the connection is
// closed as well. If the client disconnects, the request keeps its place until next returns.
//
// If the place's lease is lost, the request's context is canceled with the cause inflight.ErrLost,
// and a hijacked connection is closed. A lease is lost after MaxHold or, unless Outage is FailOpen,
// if Redis does not answer. If no place is free, the response is HTTP 429. Its Retry-After is a
// hint, from a second to a minute: about as long as this process's requests have recently held a
// place.
//
// Releasing the place takes a round trip to Redis, which delays the end of the response. If Redis
// hangs, the delay is up to twice the Timeout of Places. Wrap panics if next is nil, or if m was
// not created with NewInFlight.
func (m *InFlight) Wrap(next http.Handler) http.Handler {
	switch {
	case m == nil || m.gate == nil:
		panic("slidegate: this InFlight is nil or zero; create it with httplimit.NewInFlight")
	case next == nil:
		panic("slidegate: Wrap got a nil handler; pass the one that serves the requests")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := m.cfg.Key(r)
		if key == "" {
			m.refuseKeyless(w, r)
			return
		}
		held, err := m.gate.Enter(r.Context(), key)
		switch {
		case err != nil:
			writeProblem(w, problemOutage)
		case held == nil:
			m.deny(w)
		default:
			serveHeld(w, r, held, next)
		}
	})
}

// serveHeld runs the handler while the request holds a place.
func serveHeld(w http.ResponseWriter, r *http.Request, held *adapter.Held, next http.Handler) {
	u := &use{held: held}
	u.users.Store(1)
	defer u.end()
	inner := r.WithContext(held.Context)
	defer handBack(r, inner)
	next.ServeHTTP(httpsnoop.Wrap(withHijack(w), httpsnoop.Hooks{Hijack: u.hijack}), inner)
}

// use counts the users of a request's place: the handler, and the connection if the handler
// hijacked it.
type use struct {
	held  *adapter.Held
	users atomic.Int32
}

// end removes a user, and releases the place if no users are left.
func (u *use) end() {
	if u.users.Add(-1) == 0 {
		u.held.Release()
	}
}

// hijack makes a hijacked connection a user of the place until the connection is closed. If the
// lease is lost, the connection is closed.
func (u *use) hijack(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
	return func() (net.Conn, *bufio.ReadWriter, error) {
		conn, buffer, err := next()
		if err != nil {
			return conn, buffer, err
		}
		u.users.Add(1)
		u.held.OnLost(func(error) { _ = conn.Close() })
		return &heldConn{conn, sync.OnceFunc(u.end)}, buffer, nil
	}
}

// heldConn is a hijacked connection that holds a place until it is closed.
type heldConn struct {
	net.Conn
	end func()
}

// Close closes the connection, and releases the place if the handler has returned.
func (c *heldConn) Close() error {
	defer c.end()
	return c.Conn.Close()
}

// CloseWrite calls the connection's CloseWrite, if it has one.
func (c *heldConn) CloseWrite() error { return closeWrite(c.Conn) }

// problemNoPlace is the response to a request that gets no place.
var problemNoPlace = adapter.Problem{
	Title: "Too Many Requests", Status: http.StatusTooManyRequests,
	Detail: "Too many requests are running at the same time. Try again after the time in Retry-After, or when one has ended.",
}

// deny writes the response to a request that gets no place.
func (m *InFlight) deny(w http.ResponseWriter) {
	wait := max(ceilSeconds(m.gate.RetryAfter()), outerRetryAfter(w.Header()))
	w.Header().Set("Retry-After", strconv.FormatInt(wait, 10))
	writeProblem(w, problemNoPlace)
}

// refuseKeyless refuses a request without a key. It logs the first such request with the reason.
func (m *InFlight) refuseKeyless(w http.ResponseWriter, r *http.Request) {
	m.keylessOnce.Do(func() {
		m.cfg.Log.Warn("slidegate: requests without a key are refused; only the first is logged", "reason", m.cfg.Key.explain(r).String())
	})
	writeProblem(w, problemNoKey)
}
