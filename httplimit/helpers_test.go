package httplimit_test

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestMain runs the tests, and stops the servers that they started.
func TestMain(m *testing.M) { redistest.MainParallel(m) }

var (
	_ httplimit.Limiter = (*window.Limiter)(nil)
	_ httplimit.Limiter = (*ar1.Limiter)(nil)
)

func must[T any](v T, err error) T { return redistest.Must(v, err) }

// limits parses limits such as 5/1h.
func limits(texts ...string) (all []window.Limit) {
	for _, text := range texts {
		all = append(all, must(window.ParseLimit(text)))
	}
	return all
}

// address is the Key that limits by the address of the connection.
var address httplimit.Key = httplimit.Clients{}.Key

// everybody is a Key that is the same for all requests, so that they share their limits.
func everybody(*http.Request) string { return "everybody" }

// inMemory returns a limiter in memory, which uses the clock now unless that is nil.
func inMemory(now func() time.Time, texts ...string) *window.Limiter {
	return must(window.NewLocal(window.Config{Name: "memory", Limits: limits(texts...), Now: now}))
}

// middleware returns a middleware. Its Outage is FailClosed and its Key is everybody, unless cfg
// sets others. With Checks it has no Key.
func middleware(cfg httplimit.Config) *httplimit.Middleware {
	if cfg.Outage == "" {
		cfg.Outage = httplimit.FailClosed
	}
	if cfg.Key == nil && cfg.Checks == nil {
		cfg.Key = everybody
	}
	return must(httplimit.New(cfg))
}

// fine is a handler that writes "fine".
var fine = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") })

// ask sends one request to a handler.
func ask(h http.Handler, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// logBuffer records log lines.
type logBuffer struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (r *logBuffer) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.Write(b)
}

func (r *logBuffer) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.String()
}

// logger returns a logger that records the level and the message of each line.
func (r *logBuffer) logger() *slog.Logger { return r.loggerOf(slog.LevelKey, slog.MessageKey) }

// loggerOf returns a logger that records only the attributes with the given keys.
func (r *logBuffer) loggerOf(keys ...string) *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if slices.Contains(keys, a.Key) {
			return a
		}
		return slog.Attr{}
	}}))
}

// explains checks that there is only one line, which states that the Fallback of a limiter on
// windowtest.Down decides, and why. The logger must record level, limiter and err.
func (r *logBuffer) explains(t *testing.T, limiter string) {
	t.Helper()
	text := r.String()
	if !strings.HasPrefix(text, "level=WARN limiter="+limiter+` err="`) || !strings.Contains(text, "this Redis is down") || strings.Count(text, "\n") != 1 {
		t.Error(text)
	}
}

// request returns a request to a server.
func request(tb testing.TB, method, address string, body io.Reader) *http.Request {
	return must(http.NewRequestWithContext(tb.Context(), method, address, body))
}

// aMinute returns a context that is done when the test ends, or after a minute, so that a wait that
// hangs fails where it hangs. A minute is long enough for a busy machine.
func aMinute(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// connect opens a connection to a server, with a deadline of a minute.
func connect(s *httptest.Server) net.Conn {
	conn := must(net.Dial("tcp", s.Listener.Addr().String()))
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// reply is a response that has been read completely.
type reply struct {
	status, protocol int
	text             string
}

// send sends a request and reads the reply. It takes at most a minute.
func send(tb testing.TB, c *http.Client, r *http.Request) reply {
	tb.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	response, err := c.Do(r.WithContext(ctx))
	if err != nil {
		tb.Fatal(err)
	}
	defer response.Body.Close()
	return reply{response.StatusCode, response.ProtoMajor, string(must(io.ReadAll(response.Body)))}
}

// discardLog is for servers whose handlers panic on purpose.
var discardLog = log.New(io.Discard, "", 0)

// isFailure reports whether status is that of a failed login, which counts.
func isFailure(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// checkUsed checks how many units of the key "everybody" are used.
func checkUsed(t *testing.T, l *window.Limiter, want int64) {
	t.Helper()
	if d := must(l.Inspect(context.Background(), "everybody")); d.Limits[0].Used != want {
		t.Errorf("%d used, want %d", d.Limits[0].Used, want)
	}
}

// reported is a function for Config.CostAfter that returns the units that the handler reported.
func reported(u httplimit.Used) int64 { return u.Units }

// fixedLimiter is a limiter that always returns the same decision and error.
type fixedLimiter struct {
	window.Decision
	err error
}

func (s fixedLimiter) AllowN(context.Context, string, int64) (window.Decision, error) {
	return s.Decision, s.err
}

func (s fixedLimiter) Refund(context.Context, string, window.Decision) error { return s.err }

// stubLimiter is a limiter whose decision a test can change between requests.
type stubLimiter struct{ fixedLimiter }

func (s *stubLimiter) AllowN(context.Context, string, int64) (window.Decision, error) {
	return s.Decision, s.err
}

// takeOver is a handler that hijacks its connection.
func takeOver(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		_ = conn.Close()
	}
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// btoi returns 1 for true, and 0 for false.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// proxies lists the proxies that these tests trust.
var proxies = []string{"10.0.0.0/8", "192.0.2.10", "2001:db8:ffff::/48"}

// from returns a request from peer, with the given lines of X-Forwarded-For.
func from(peer string, lines ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = peer
	if lines != nil {
		r.Header["X-Forwarded-For"] = lines
	}
	return r
}

// The log lines about outages and Fallbacks.
const (
	lineOutage    = `level=ERROR msg="slidegate: the limiter cannot decide"` + "\n"
	lineDegraded  = `level=WARN msg="slidegate: the limiter's Fallback decides, by its own limits"` + "\n"
	lineRecovered = `level=INFO msg="slidegate: the limiter decides again"` + "\n"
)

// always returns a function for Config.Choose that always returns l.
func always(l httplimit.Limiter) func(*http.Request) (httplimit.Limiter, error) {
	return func(*http.Request) (httplimit.Limiter, error) { return l, nil }
}
