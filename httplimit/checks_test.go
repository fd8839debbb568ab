package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
	"github.com/slidegate/slidegate/windowtest"
)

// checksOf returns a function for Config.Checks that returns the same checks for every request.
func checksOf(checks ...window.Check) func(*http.Request) []window.Check {
	return func(*http.Request) []window.Check { return checks }
}

// named returns a limiter in memory whose clock stands still.
func named(name string, texts ...string) *window.Limiter {
	now := func() time.Time { return time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC) }
	return must(window.NewLocal(window.Config{Name: name, Limits: limits(texts...), Now: now}))
}

// TestChecksInFields checks that each limit has its own name in the header fields and the problem
// details. If another check denies the request, a check that would allow it counts nothing: it has
// no wait, and its remaining units do not change.
func TestChecksInFields(t *testing.T) {
	keys, tokens := named("keys", "2/1h", "5/1d"), named("tokens", "2/1h")
	h := middleware(httplimit.Config{LegacyHeaders: true, Checks: checksOf(
		window.Check{Limiter: keys, Event: "alice"}, window.Check{Limiter: keys, Event: "bob"}, window.Check{Limiter: tokens, Event: "alice", N: 2},
	)}).Wrap(fine)
	const policy = `"keys:2/1h";q=2;w=3600, "keys:5/1d";q=5;w=86400, "keys:2/1h:2";q=2;w=3600, "keys:5/1d:2";q=5;w=86400, "tokens:2/1h";q=2;w=3600`
	for i, want := range []string{
		`200 "keys:2/1h";r=1, "keys:5/1d";r=4, "keys:2/1h:2";r=1, "keys:5/1d:2";r=4, "tokens:2/1h";r=0;t=3600  2 0`,
		`429 "keys:2/1h";r=1, "keys:5/1d";r=4, "keys:2/1h:2";r=1, "keys:5/1d:2";r=4, "tokens:2/1h";r=0;t=3600 3600 2 0`,
	} {
		w := ask(h)
		f := w.Header()
		got := fmt.Sprint(w.Code, " ", f.Get("RateLimit"), " ", f.Get("Retry-After"), " ", f.Get("X-RateLimit-Limit"), " ", f.Get("X-RateLimit-Remaining"))
		if got != want || f.Get("RateLimit-Policy") != policy {
			t.Errorf("request %d: %s\n%s", i+1, got, f.Get("RateLimit-Policy"))
		}
		if violated := strings.Contains(w.Body.String(), `"violated-policies":["tokens:2/1h"]`); violated != (w.Code == http.StatusTooManyRequests) {
			t.Errorf("request %d: %s", i+1, w.Body)
		}
	}
	for _, event := range []string{"alice", "bob"} {
		if used := must(keys.Inspect(t.Context(), event)).Limits[0].Used; used != 1 {
			t.Errorf("%s has used %d", event, used)
		}
	}
}

// TestChecksDenied checks that Denied gets a single decision that has the limits of all checks and
// the longest wait.
func TestChecksDenied(t *testing.T) {
	one, two, free := named("one", "1/1h"), named("two", "1/1m"), named("free", "9/1h")
	var got window.Decision
	h := middleware(httplimit.Config{
		Denied: func(_ http.ResponseWriter, _ *http.Request, d window.Decision) { got = d },
		Checks: checksOf(window.Check{Limiter: free, Event: "e"}, window.Check{Limiter: two, Event: "e"}, window.Check{Limiter: one, Event: "e"}),
	}).Wrap(fine)
	ask(h)
	ask(h)
	if got.Allowed || got.RetryAfter != time.Hour || got.Remaining != 0 || len(got.Usage) != 3 || got.Tightest().Limit != limits("1/1h")[0] || !got.At.Equal(must(one.Peek(t.Context(), "e")).At) {
		t.Errorf("%+v", got)
	}
}

// TestNoChecks checks that a request without checks is not limited.
func TestNoChecks(t *testing.T) {
	w := ask(middleware(httplimit.Config{Checks: checksOf()}).Wrap(fine))
	if w.Code != http.StatusOK || w.Header().Get("RateLimit") != "" {
		t.Error(w.Code, w.Header())
	}
}

// TestChecksRefused checks the response and the log if there is no decision. In Shadow, the request
// passes.
func TestChecksRefused(t *testing.T) {
	out := must(window.New(windowtest.Down(), window.Config{Name: "out", Limits: limits("9/1h")}))
	l := named("l", "2/1h")
	key := httplimit.Header("X-Api-Key")
	for name, of := range map[string]struct {
		check  window.Check
		status int
		line   string
	}{
		"no event":   {window.Check{Limiter: l}, 400, `level=WARN msg="slidegate: requests without a key are refused; only the first is logged" reason="the header X-Api-Key is missing or empty; a check has an empty Event"` + "\n"},
		"no cost":    {window.Check{Limiter: l, Event: "e", N: -1}, 400, ""},
		"too costly": {window.Check{Limiter: l, Event: "e", N: 3}, 413, ""},
		"outage":     {window.Check{Limiter: out, Event: "e"}, 503, lineOutage},
		"no limiter": {window.Check{Event: "e"}, 503, `level=ERROR msg="slidegate: a request got no decision"` + "\n"},
	} {
		for _, shadow := range []bool{false, true} {
			var log logBuffer
			w := ask(middleware(httplimit.Config{Shadow: shadow, Log: log.loggerOf("level", "msg", "reason"), Checks: func(r *http.Request) []window.Check {
				key(r) // records the reason for the log
				return []window.Check{of.check}
			}}).Wrap(fine))
			want, line := of.status, of.line
			if shadow {
				want, line = http.StatusOK, log.String()
			}
			if w.Code != want || log.String() != line || w.Header().Get("RateLimit") != "" {
				t.Errorf("%s: %d, not %d\n%s", name, w.Code, want, &log)
			}
		}
	}
	open := middleware(httplimit.Config{Outage: httplimit.FailOpen, Log: new(logBuffer).logger(), Checks: checksOf(window.Check{Limiter: out, Event: "e"})})
	if w := ask(open.Wrap(fine)); w.Code != http.StatusOK {
		t.Error(w.Code)
	}
}

// TestChecksStayCounted checks that a request is still denied if Redis dies before its units are
// given back, and that this is logged.
func TestChecksStayCounted(t *testing.T) {
	s := redistest.Start(t)
	one := must(window.New(window.On(s.Client(t)), window.Config{Name: redistest.Key(t), Limits: limits("9/1h"), Timeout: time.Minute}))
	full := must(window.NewLocal(window.Config{Name: "full", Limits: limits("1/1h"), Observe: func(_ context.Context, o window.Observation) {
		if o.Kind == window.KindDenied {
			s.Kill(t)
		}
	}}))
	var log logBuffer
	h := middleware(httplimit.Config{Log: log.logger(), Checks: checksOf(window.Check{Limiter: one, Event: "e"}, window.Check{Limiter: full, Event: "e"})}).Wrap(fine)
	ask(h)
	w := ask(h)
	const line = `level=WARN msg="slidegate: a denied request stays partly counted, because units could not be given back"` + "\n"
	if w.Code != http.StatusTooManyRequests || log.String() != line {
		t.Errorf("%d, %s", w.Code, &log)
	}
}

// TestChecksInOutage checks that while Redis is down, the Fallbacks' limits apply and appear in the
// header fields.
func TestChecksInOutage(t *testing.T) {
	conn := windowtest.Down()
	var checks []window.Check
	for _, name := range []string{"one", "two"} {
		l := must(window.New(conn, window.Config{Name: name, Limits: limits("9/1h"), Fallback: named("local", "1/1h")}))
		checks = append(checks, window.Check{Limiter: l, Event: "e"})
	}
	var log logBuffer
	h := middleware(httplimit.Config{Checks: checksOf(checks...), Log: log.logger()}).Wrap(fine)
	for i, want := range []string{`200 "one:1/1h";r=0;t=3600, "two:1/1h";r=0;t=3600`, `429 "one:1/1h";r=0;t=3600`} {
		if w := ask(h); fmt.Sprint(w.Code, " ", w.Header().Get("RateLimit")) != want {
			t.Errorf("request %d: %d, %v", i+1, w.Code, w.Header())
		}
	}
	if log.String() != lineDegraded {
		t.Error(&log)
	}
}

// TestChecksOfLeavingClient checks that a client cannot cause only some of the checks to be counted
// by disconnecting, but that a deadline ends the call.
func TestChecksOfLeavingClient(t *testing.T) {
	one, two := named("one", "5/1h"), named("two", "5/1h")
	h := middleware(httplimit.Config{Log: new(logBuffer).logger(), Checks: checksOf(window.Check{Limiter: one, Event: "everybody"}, window.Check{Limiter: two, Event: "everybody"})}).Wrap(fine)
	gone, leave := context.WithCancel(t.Context())
	leave()
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	for _, of := range []struct {
		ctx  context.Context
		want int
	}{{gone, http.StatusOK}, {late, http.StatusServiceUnavailable}} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(of.ctx))
		if w.Code != of.want {
			t.Error(w.Code)
		}
		checkUsed(t, one, 1)
		checkUsed(t, two, 1)
	}
}
