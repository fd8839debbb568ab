package httplimit_test

import (
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var (
	_ httplimit.Limiter = (*window.Limiter)(nil)
	_ httplimit.Limiter = (*ar1.Limiter)(nil)
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func parsed(texts ...string) (all []window.Limit) {
	for _, text := range texts {
		all = append(all, must(window.ParseLimit(text)))
	}
	return all
}

// everybody is one client, so that requests share their limits.
func everybody(*http.Request) string { return "everybody" }

// inMemory is a limiter in memory, on a clock if that is not nil.
func inMemory(now func() time.Time, limits ...string) *window.Limiter {
	return must(window.NewLocal(window.Config{Name: "memory", Limits: parsed(limits...), Now: now}))
}

// middleware is one whose Outage is Closed and whose Key is everybody, where cfg does not say otherwise.
func middleware(cfg httplimit.Config) *httplimit.Middleware {
	if cfg.Outage == "" {
		cfg.Outage = httplimit.Closed
	}
	if cfg.Key == nil {
		cfg.Key = everybody
	}
	return must(httplimit.New(cfg))
}

// fine is a handler that writes "fine".
var fine = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") })

// ask sends a handler one request.
func ask(h http.Handler, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A record is a log that keeps its lines.
type record struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.Write(b)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.String()
}

// logger keeps level and message of each line.
func (r *record) logger() *slog.Logger { return r.loggerOf(slog.LevelKey, slog.MessageKey) }

// loggerOf keeps these attributes.
func (r *record) loggerOf(keys ...string) *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if slices.Contains(keys, a.Key) {
			return a
		}
		return slog.Attr{}
	}}))
}

// request is one to a server.
func request(tb testing.TB, method, address string, body io.Reader) *http.Request {
	return must(http.NewRequestWithContext(tb.Context(), method, address, body))
}

// A reply is a response that was read to its end.
type reply struct {
	status, protocol int
	text             string
}

// send sends a request, and reads the reply.
func send(tb testing.TB, c *http.Client, r *http.Request) reply {
	tb.Helper()
	response, err := c.Do(r)
	if err != nil {
		tb.Fatal(err)
	}
	defer response.Body.Close()
	return reply{response.StatusCode, response.ProtoMajor, string(must(io.ReadAll(response.Body)))}
}

// quiet is where a server tells of its panics.
var quiet = log.New(io.Discard, "", 0)
