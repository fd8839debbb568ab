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
	cfg     InFlightConfig
	inbound *adapter.Inbound
	keyless adapter.Keyless
}

// NewInFlight returns an InFlight. It returns an error if Places, Key or Outage is missing, if Wait
// is negative, or if Outage is neither FailOpen nor FailClosed.
func NewInFlight(cfg InFlightConfig) (*InFlight, error) {
	inbound, err := adapter.NewInbound("httplimit.InFlight", cfg.Places, cfg.Wait, string(cfg.Outage), cfg.Log)
	switch {
	case err != nil:
		return nil, err
	case cfg.Key == nil:
		return nil, errNoKey
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	return &InFlight{cfg: cfg, inbound: inbound}, nil
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
	case m == nil || m.inbound == nil:
		panic("slidegate: this InFlight is nil or zero; create it with httplimit.NewInFlight")
	case next == nil:
		panic("slidegate: Wrap got a nil handler; pass the one that serves the requests")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := m.cfg.Key(r)
		if key == "" {
			m.cfg.Key.logKeyless(&m.keyless, m.cfg.Log, r)
			writeProblem(w, problemNoKey)
			return
		}
		place, err := m.inbound.Enter(r.Context(), key)
		switch {
		case err != nil:
			writeProblem(w, problemOutage)
		case place == nil:
			outer, _ := longestWait(w.Header(), false)
			w.Header().Set("Retry-After", strconv.FormatInt(max(ceilSeconds(m.inbound.RetryAfter()), outer), 10))
			writeProblem(w, problemNoPlace)
		default:
			serveIn(place, w, r, next)
		}
	})
}

// serveIn runs the handler while the request holds the place.
func serveIn(place *adapter.Place, w http.ResponseWriter, r *http.Request, next http.Handler) {
	u := &use{place: place}
	u.users.Store(1)
	defer u.end()
	inner := r.WithContext(place.Context)
	defer handBack(r, inner)
	next.ServeHTTP(httpsnoop.Wrap(withHijack(w), httpsnoop.Hooks{Hijack: u.hijack}), inner)
}

// use counts the users of a request's place: the handler, and the connection if the handler
// hijacked it.
type use struct {
	place *adapter.Place
	users atomic.Int32
}

// end removes a user, and releases the place if no users are left.
func (u *use) end() {
	if u.users.Add(-1) == 0 {
		u.place.Release()
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
		u.place.OnLost(func(error) { _ = conn.Close() })
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
