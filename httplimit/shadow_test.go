package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// TestShadow checks that all requests that would be refused reach the handler, and that clients see
// no limits.
func TestShadow(t *testing.T) {
	full := inMemory(nil, "1/1h")
	_ = must(full.Allow(t.Context(), "everybody"))
	gone, leave := context.WithCancel(t.Context())
	leave()
	cost := func(n int64) func(*http.Request) int64 { return func(*http.Request) int64 { return n } }
	for name, cfg := range map[string]httplimit.Config{
		"denied":                 {Limiter: full},
		"denied with CountOnly":  {Limiter: full, CountOnly: func(int) bool { return true }},
		"denied by a check":      {Checks: checksOf(window.Check{Limiter: full, Event: "everybody"})},
		"blocked":                {Choose: always(httplimit.Blocked)},
		"no key":                 {Limiter: full, Key: func(*http.Request) string { return "" }},
		"no cost":                {Limiter: full, Cost: cost(-1)},
		"too costly":             {Limiter: full, Cost: cost(2)},
		"free":                   {Limiter: full, Cost: cost(0)},
		"an outage":              {Limiter: fixedLimiter{err: window.ErrOutage}},
		"a foreign value":        {Limiter: fixedLimiter{err: context.DeadlineExceeded}},
		"a client that has gone": {Limiter: fixedLimiter{err: context.Canceled}},
		"allowed":                {Limiter: inMemory(nil, "1/1h"), LegacyHeaders: true},
	} {
		cfg.Shadow, cfg.Log = true, new(logBuffer).logger()
		cfg.Denied = func(http.ResponseWriter, *http.Request, window.Decision) { t.Error(name, "is answered by Denied") }
		w := ask(middleware(cfg).Wrap(fine), func(r *http.Request) {
			if strings.Contains(name, "gone") {
				*r = *r.WithContext(gone)
			}
		})
		if w.Header().Del("Content-Type"); w.Code != http.StatusOK || w.Body.String() != "fine" || len(w.Header()) != 0 {
			t.Errorf("%s: %d, %s, %v", name, w.Code, w.Body, w.Header())
		}
	}
}

// TestShadowLog checks that the first refusal of each kind is logged immediately, and the number of
// later refusals once a minute. Outages are logged separately.
func TestShadowLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		var s stubLimiter
		h := middleware(httplimit.Config{
			Limiter: &s, Shadow: true, Log: log.loggerOf("msg", "requests", "status", "last_limits"),
			Key: func(r *http.Request) string { return r.Header.Get("X-Key") },
		}).Wrap(fine)
		s.Decision = window.Decision{RetryAfter: time.Hour, Usage: []window.Usage{{Limit: window.PerHour(5), RetryAfter: time.Hour}, {Limit: window.PerDay(9)}}}
		keyed := func(r *http.Request) { r.Header.Set("X-Key", "a") }
		for range 100 { // 49.5 s
			ask(h, keyed)
			ask(h)
			<-time.After(495 * time.Millisecond)
		}
		<-time.After(time.Minute)
		ask(h, keyed)
		ask(h, keyed)
		s.err = window.ErrOutage
		ask(h, keyed)
		want := `msg="slidegate: shadow: requests passed that would have been refused" requests=1 status=429 last_limits=[5/1h]
msg="slidegate: shadow: requests passed that would have been refused" requests=1 status=400 last_limits=[]
msg="slidegate: shadow: requests passed that would have been refused" requests=100 status=429 last_limits=[5/1h]
msg="slidegate: the limiter cannot decide"
`
		if log.String() != want {
			t.Errorf("%s\nnot:\n%s", &log, want)
		}
	})
}

// legacyHeaders returns the X-RateLimit headers: limit, remaining, and the time from since to the
// reset.
func legacyHeaders(w *httptest.ResponseRecorder, since time.Time) [3]string {
	h, reset := w.Header(), w.Header().Get("X-RateLimit-Reset")
	if at, err := time.ParseDuration(reset + "s"); err == nil {
		reset = (at - time.Duration(since.Unix())*time.Second).String()
	}
	return [3]string{h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining"), reset}
}

// TestLegacyHeaders checks which limit the headers describe, and that they are sent only with
// LegacyHeaders.
func TestLegacyHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		h := middleware(httplimit.Config{Limiter: inMemory(nil, "2/5s", "3/1h"), LegacyHeaders: true}).Wrap(fine)
		for _, of := range []struct {
			at   time.Duration
			want [3]string
		}{
			{0, [3]string{"2", "1", "0s"}},
			{1500 * time.Millisecond, [3]string{"2", "0", "5s"}},
			{2500 * time.Millisecond, [3]string{"2", "0", "5s"}}, // denied
			{5 * time.Second, [3]string{"3", "0", "1h0m0s"}},     // the last of three, and the second within 5 s
			{5100 * time.Millisecond, [3]string{"3", "0", "1h0m0s"}},
			{time.Hour, [3]string{"3", "0", "1h0m2s"}}, // at 1h0m1.5s, rounded up
		} {
			<-time.After(time.Until(begin.Add(of.at)))
			if got := legacyHeaders(ask(h), begin); got != of.want {
				t.Errorf("after %v: %v, not %v", of.at, got, of.want)
			}
		}
		plain := middleware(httplimit.Config{Limiter: inMemory(nil, "1/5s")}).Wrap(fine)
		if got := legacyHeaders(ask(plain), begin); got != [3]string{} {
			t.Errorf("not wanted: %v", got)
		}
	})
}
