package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// status returns a Status with the given quotas. A missing Key is set to everybody.
func status(log *logBuffer, quotas ...httplimit.Quota) http.Handler {
	for i := range quotas {
		if quotas[i].Key == nil {
			quotas[i].Key = everybody
		}
	}
	return must(httplimit.NewStatus(httplimit.StatusConfig{Quotas: quotas, Log: log.loggerOf("level", "msg", "quota", "reason")}))
}

// TestStatusOfCaller checks what a caller sees for each kind of limiter, and that nothing is
// counted.
func TestStatusOfCaller(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	requests := inMemory(clock, "1/1500ms", "5/1h")
	level := must(ar1.NewLocal(ar1.Config{Name: "level", Limits: limits("3/10s"), Now: clock}))
	_ = must(requests.Allow(t.Context(), "bob"))
	_ = must(requests.Allow(t.Context(), "alice"))
	_ = must(level.Allow(t.Context(), "everybody"))
	now = now.Add(1200 * time.Millisecond)
	mine := func(r *http.Request) string { return r.Header.Get("Account") }
	h := status(new(logBuffer),
		httplimit.Quota{Name: "requests", Limiter: requests, Key: mine}, httplimit.Quota{Name: "level", Limiter: level},
		httplimit.Quota{Name: "plan", Choose: always(must(requests.With(limits("9/1h")...))), Key: mine},
		httplimit.Quota{Name: "free", Choose: always(httplimit.Unlimited)}, httplimit.Quota{Name: "closed", Limiter: httplimit.Blocked})
	const same = `{"name":"level","allowed":true,"limits":[{"limit":"3/10s","max":3,"window":10,"used":1,"remaining":2,"retry_after":0,"reset_after":13}]},`
	const constant = `{"name":"free","allowed":true,"limits":[]},{"name":"closed","allowed":false,"limits":[]}]}` + "\n"
	for account, want := range map[string]string{
		"alice": `{"quotas":[{"name":"requests","allowed":false,"limits":[{"limit":"1/1.5s","max":1,"window":1.5,"used":1,"remaining":0,"retry_after":1,"reset_after":1},` +
			`{"limit":"5/1h","max":5,"window":3600,"used":1,"remaining":4,"retry_after":0,"reset_after":3599}]},` + same +
			`{"name":"plan","allowed":true,"limits":[{"limit":"9/1h","max":9,"window":3600,"used":1,"remaining":8,"retry_after":0,"reset_after":3599}]},` + constant,
		"carol": `{"quotas":[{"name":"requests","allowed":true,"limits":[{"limit":"1/1.5s","max":1,"window":1.5,"used":0,"remaining":1,"retry_after":0,"reset_after":0},` +
			`{"limit":"5/1h","max":5,"window":3600,"used":0,"remaining":5,"retry_after":0,"reset_after":0}]},` + same +
			`{"name":"plan","allowed":true,"limits":[{"limit":"9/1h","max":9,"window":3600,"used":0,"remaining":9,"retry_after":0,"reset_after":0}]},` + constant,
	} {
		for range 3 {
			w := ask(h, func(r *http.Request) { r.Header.Set("Account", account) })
			if w.Code != http.StatusOK || w.Body.String() != want || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%d, %v\n%s\nnot:\n%s", w.Code, w.Header(), w.Body, want)
			}
		}
	}
}

// TestStatusRefused checks the responses to other methods and to callers without a key, and that
// only the first such caller is logged.
func TestStatusRefused(t *testing.T) {
	var log logBuffer
	h := status(&log, httplimit.Quota{Name: "open", Limiter: inMemory(nil, "5/1h")}, httplimit.Quota{Name: "mine", Limiter: inMemory(nil, "5/1h"), Key: httplimit.Header("Account")})
	for _, of := range []struct {
		method, account string
		status          int
	}{{"GET", "17", 200}, {"HEAD", "17", 200}, {"GET", "", 400}, {"HEAD", "", 400}, {"POST", "17", 405}, {"DELETE", "", 405}} {
		w := ask(h, func(r *http.Request) {
			if r.Method = of.method; of.account != "" {
				r.Header.Set("Account", of.account)
			}
		})
		isProblem := w.Header().Get("Content-Type") == "application/problem+json"
		allow := w.Header().Get("Allow") == "GET, HEAD"
		if w.Code != of.status || isProblem != (of.status != 200) || allow != (of.status == 405) || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%v: %d, %v, %s", of, w.Code, w.Header(), w.Body)
		}
	}
	if want := `level=WARN msg="slidegate: requests without a key are refused; only the first is logged" quota=mine reason="the header Account is missing or empty"` + "\n"; log.String() != want {
		t.Error(&log)
	}
}

// TestStatusInOutage checks that a caller sees no limits if one of two limiters cannot be read, and
// that the log names that limiter once. The Fallback is not used, because it does not know what
// Redis has counted.
func TestStatusInOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	up := must(window.New(window.On(redistest.Client(t)), window.Config{Name: redistest.Key(t), Limits: limits("5/1h"), Timeout: time.Minute}))
	down := must(window.New(window.On(s.Client(t)), window.Config{Name: redistest.Key(t), Limits: limits("5/1h"), Timeout: time.Minute, Fallback: inMemory(nil, "5/1h")}))
	var log logBuffer
	h := status(&log, httplimit.Quota{Name: "up", Limiter: up}, httplimit.Quota{Name: "down", Limiter: down})
	check := func(want int, contains, lines string) {
		t.Helper()
		w := ask(h)
		if w.Code != want || !strings.Contains(w.Body.String(), contains) || log.String() != lines || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%d, %v, %s\n%s", w.Code, w.Header(), w.Body, &log)
		}
	}
	check(http.StatusOK, `"remaining":5`, "")
	s.Kill(t)
	const line = `level=ERROR msg="slidegate: the limiter cannot decide" quota=down` + "\n"
	for range 3 {
		check(http.StatusServiceUnavailable, `"detail":"The limits cannot be read at the moment. Try again soon."`, line)
	}
	checkUsed(t, up, 0)
	gone, leave := context.WithCancel(t.Context())
	leave()
	h, log = status(&log, httplimit.Quota{Name: "up", Limiter: up}), logBuffer{}
	if w := ask(h, func(r *http.Request) { *r = *r.WithContext(gone) }); w.Code != http.StatusServiceUnavailable || log.String() != "" {
		t.Errorf("%d, %s", w.Code, &log)
	}
}

// TestStatusChoosesInTurn checks that every quota's Choose can read the request's form, and that a
// panic in Choose occurs in the handler's goroutine, where net/http recovers it.
func TestStatusChoosesInTurn(t *testing.T) {
	limiter := inMemory(nil, "5/1h")
	byForm := func(r *http.Request) (httplimit.Limiter, error) { return limiter, r.ParseForm() }
	panics := func(*http.Request) (httplimit.Limiter, error) { panic("a mistake") }
	if w := ask(status(new(logBuffer), httplimit.Quota{Name: "a", Choose: byForm}, httplimit.Quota{Name: "b", Choose: byForm})); w.Code != http.StatusOK {
		t.Error(w.Code, w.Body)
	}
	defer func() {
		if value := recover(); value != "a mistake" {
			t.Errorf("a panic of %v", value)
		}
	}()
	ask(status(new(logBuffer), httplimit.Quota{Name: "a", Choose: panics}, httplimit.Quota{Name: "b", Choose: byForm}))
}

// TestStatusMistakes checks that a mistake in Choose, or a foreign value in Redis, is logged each
// time, and handled as in an outage.
func TestStatusMistakes(t *testing.T) {
	client, name := redistest.Client(t), redistest.Key(t)
	foreign := must(window.New(window.On(client), window.Config{Name: name, Limits: limits("1/1h"), Timeout: time.Minute}))
	if err := client.Do(t.Context(), client.B().Set().Key(name+":{everybody}:w").Value("foreign").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	for _, q := range []httplimit.Quota{{Choose: always(nil)}, {Choose: always(fixedLimiter{})}, {Limiter: foreign}} {
		var log logBuffer
		q.Name = "q"
		h := status(&log, q)
		for range 2 {
			if w := ask(h); w.Code != http.StatusServiceUnavailable {
				t.Errorf("%+v: %d, %s", q, w.Code, w.Body)
			}
		}
		if want := strings.Repeat(`level=ERROR msg="slidegate: a request got no decision" quota=q`+"\n", 2); log.String() != want {
			t.Error(&log)
		}
	}
}

// TestWrongStatus checks the error of each mistake in StatusConfig.
func TestWrongStatus(t *testing.T) {
	l := inMemory(nil, "1/1h")
	good := httplimit.Quota{Name: "good", Limiter: l, Key: everybody}
	for want, quotas := range map[string][]httplimit.Quota{
		"slidegate: the Status has no Quotas; name the limiters that callers see":                                                                       nil,
		`slidegate: quota 2 of the Status, "", has no Name; set the one that callers see`:                                                               {good, {Limiter: l, Key: everybody}},
		`slidegate: quota 1 of the Status, "a", needs either a Limiter or Choose`:                                                                       {{Name: "a", Key: everybody}},
		`slidegate: quota 1 of the Status, "b", needs either a Limiter or Choose`:                                                                       {{Name: "b", Limiter: l, Choose: always(l), Key: everybody}},
		`slidegate: quota 1 of the Status, "c", has no Key; set one that returns whose counts the caller sees, as in Config`:                            {{Name: "c", Limiter: l}},
		`slidegate: quota 1 of the Status, "d", has a Limiter without Inspect, a httplimit_test.fixedLimiter; use a *window.Limiter or an *ar1.Limiter`: {{Name: "d", Limiter: fixedLimiter{}, Key: everybody}},
		`slidegate: two quotas of the Status have the Name "good"; give each its own`:                                                                   {good, good},
	} {
		if s, err := httplimit.NewStatus(httplimit.StatusConfig{Quotas: quotas}); s != nil || fmt.Sprint(err) != want {
			t.Errorf("%v\nnot: %s", err, want)
		}
	}
}
