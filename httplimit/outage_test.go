package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// statusAndPolicy returns the status, and the policy if there are fields.
func statusAndPolicy(w *httptest.ResponseRecorder) string {
	return fmt.Sprint(w.Code, " ", w.Header().Get("RateLimit-Policy"))
}

// TestOutage kills Redis, or makes it hang, while 16 clients keep sending requests. It checks the
// responses before, during and after the outage, that the log has one line at the start and one at
// the end, and that no client waits much longer than the Timeout.
func TestOutage(t *testing.T) {
	const timeout = 500 * time.Millisecond
	ways := []struct {
		name   string
		outage httplimit.Outage
		falls  bool
		during string
		begin  string
	}{
		{"Open", httplimit.FailOpen, false, `200 `, lineOutage},
		{"Closed", httplimit.FailClosed, false, `503 `, lineOutage},
		{"Fallback", httplimit.FailClosed, true, `200 "900000/1h";q=900000;w=3600`, lineDegraded},
	}
	const usual = `200 "1000000/1h";q=1000000;w=3600`
	for name, trouble := range map[string]func(s *redistest.Server) (end func()){
		"killed": func(s *redistest.Server) func() { s.Kill(t); return func() { s.Restart(t) } },
		"hung":   func(s *redistest.Server) func() { s.Pause(t); return func() { s.Resume(t) } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			client := s.Client(t)
			var all []*pollers
			for _, of := range ways {
				cfg := window.Config{Name: redistest.Key(t), Limits: limits("1000000/1h"), Timeout: timeout}
				if of.falls {
					cfg.Fallback = inMemory(nil, "900000/1h")
				}
				c := &pollers{log: new(logBuffer)}
				c.handler = middleware(httplimit.Config{Limiter: must(window.New(window.On(client), cfg)), Outage: of.outage, Log: c.log.logger()}).Wrap(fine)
				all = append(all, c)
				defer c.start(16)()
			}
			for i, of := range ways {
				all[i].await(t, of.name+" before", usual, "")
			}
			end := trouble(s)
			for i, of := range ways {
				all[i].await(t, of.name+" in the outage", of.during, of.begin)
			}
			end()
			for i, of := range ways {
				all[i].await(t, of.name+" after", usual, of.begin+lineRecovered)
			}
			for i, of := range ways {
				if longest := time.Duration(all[i].longest.Load()); longest > 1500*time.Millisecond { // rueidis alone gives up after 2 s
					t.Errorf("%s: a request took %v", of.name, longest)
				}
			}
		})
	}
}

// pollers are clients that keep sending requests to a handler.
type pollers struct {
	handler http.Handler
	log     *logBuffer
	longest atomic.Int64
	last    sync.Map // the last response to each client
}

// start starts the clients, and returns a function that stops them.
func (c *pollers) start(clients int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for tick := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				begin := time.Now()
				c.last.Store(i, statusAndPolicy(ask(c.handler)))
				took := int64(time.Since(begin))
				for l := c.longest.Load(); took > l && !c.longest.CompareAndSwap(l, took); l = c.longest.Load() {
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// await waits until all clients get the response answer and the log consists of lines. It fails the
// test after 30 s.
func (c *pollers) await(t *testing.T, what, answer, lines string) {
	t.Helper()
	over := time.After(30 * time.Second)
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		agree := true
		c.last.Range(func(_, got any) bool { agree = agree && got == answer; return true })
		if _, some := c.last.Load(0); some && agree && c.log.String() == lines {
			return
		}
		select {
		case <-tick.C:
		case <-over:
			all := map[any]any{}
			c.last.Range(func(k, v any) bool { all[k] = v; return true })
			t.Fatalf("%s: not %q and\n%sbut %v and\n%s", what, answer, lines, all, c.log)
		}
	}
}

// TestShardOut checks that if requests on one shard of a cluster fail while others succeed, the log
// has only one line, and a second line once no request has failed for five seconds.
func TestShardOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		var s stubLimiter
		h := middleware(httplimit.Config{Limiter: &s, Outage: httplimit.FailOpen, Log: log.logger()}).Wrap(fine)
		s.Allowed = true
		ask(h)
		check := func(when, want string) {
			t.Helper()
			if log.String() != want {
				t.Errorf("%s:\n%s", when, &log)
			}
		}
		for range 100 {
			for _, s.err = range []error{nil, window.ErrOutage, nil, window.ErrUncertain} {
				ask(h)
			}
			<-time.After(time.Second)
		}
		check("in the outage", lineOutage)
		s.err = nil
		ask(h)
		check("a second after", lineOutage)
		<-time.After(4 * time.Second)
		ask(h)
		check("five seconds after", lineOutage+lineRecovered)
		ask(h)
		check("later", lineOutage+lineRecovered)
	})
}

// TestFallbackStates checks the log when the Fallback takes over, fails, takes over again, and is
// no longer needed.
func TestFallbackStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		var s stubLimiter
		h := middleware(httplimit.Config{Limiter: &s, Log: log.logger()}).Wrap(fine)
		s.Allowed = true
		for _, of := range []struct {
			degraded bool
			err      error
		}{{false, nil}, {true, nil}, {true, nil}, {false, window.ErrOutage}, {true, nil}, {false, nil}, {false, nil}} {
			s.Degraded, s.err = of.degraded, of.err
			ask(h)
			ask(h)
			<-time.After(6 * time.Second)
		}
		if want := lineDegraded + lineOutage + lineDegraded + lineRecovered; log.String() != want {
			t.Errorf("not\n%sbut\n%s", want, &log)
		}
	})
}

// TestNoOutage checks that a request that costs more units than a limit ever allows gets HTTP 413
// and is not logged.
func TestNoOutage(t *testing.T) {
	var log logBuffer
	h := middleware(httplimit.Config{Limiter: inMemory(nil, "1/1h"), Cost: func(*http.Request) int64 { return 2 }, Outage: httplimit.FailOpen, Log: log.logger()}).Wrap(fine)
	if w := ask(h); w.Code != http.StatusRequestEntityTooLarge || log.String() != "" {
		t.Errorf("%d, %q", w.Code, &log)
	}
}

// TestDenialCache checks that with a DenialCache, a client that keeps retrying is denied
// immediately, with the rest of its wait, even while Redis hangs.
func TestDenialCache(t *testing.T) {
	s := redistest.Start(t)
	l := must(window.New(window.On(s.Client(t)), window.Config{Name: redistest.Key(t), Limits: limits("1/1h"), DenialCache: 10}))
	h := middleware(httplimit.Config{Limiter: l}).Wrap(fine)
	for range 10 {
		ask(h)
	}
	s.Pause(t)
	defer s.Resume(t)
	for range 100 {
		if w := ask(h); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Fatalf("%d, %v", w.Code, w.Header())
		}
	}
}

// TestNoRecord checks that a foreign value in Redis counts as an outage for the client concerned,
// and that the log names its key.
func TestNoRecord(t *testing.T) {
	client, name := redistest.Client(t), redistest.Key(t)
	l := must(window.New(window.On(client), window.Config{Name: name, Limits: limits("1/1h"), Timeout: time.Minute}))
	if err := client.Do(t.Context(), client.B().Set().Key(name+":{everybody}:w").Value("foreign").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	var log logBuffer
	w := ask(middleware(httplimit.Config{Limiter: l, Log: log.loggerOf("err")}).Wrap(fine))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(log.String(), name+":{everybody}:w") {
		t.Errorf("%d, %q", w.Code, &log)
	}
}

// TestSecretStaysSecret checks that with a Secret, the log never contains the key of a request.
func TestSecretStaysSecret(t *testing.T) {
	s := redistest.Start(t)
	l := must(window.New(window.On(s.Client(t)), window.Config{Name: redistest.Key(t), Limits: limits("1/1h"), Secret: []byte("0123456789abcdef"), Timeout: 10 * time.Second}))
	var log logBuffer
	h := middleware(httplimit.Config{Limiter: l, Key: httplimit.Header("X-Api-Key"), Log: log.loggerOf("err", "msg")}).Wrap(fine)
	with := func(r *http.Request) { r.Header.Set("X-Api-Key", "hunter2") }
	if w := ask(h, with); w.Code != http.StatusOK {
		t.Error(w.Code)
	}
	if err := s.Do(t.Context(), "SET", must(l.Inspect(t.Context(), "header X-Api-Key hunter2")).Key, "foreign").Error(); err != nil {
		t.Fatal(err)
	}
	if w := ask(h, with); w.Code != http.StatusServiceUnavailable {
		t.Error(w.Code)
	}
	s.Kill(t)
	h = middleware(httplimit.Config{Limiter: l, Key: httplimit.Header("X-Api-Key"), Log: log.loggerOf("err", "msg")}).Wrap(fine)
	if w := ask(h, with); w.Code != http.StatusServiceUnavailable {
		t.Error(w.Code)
	}
	if text := log.String(); strings.Contains(text, "hunter2") || strings.Count(text, "\n") != 2 {
		t.Errorf("%s", text)
	}
}

// TestLogSaysWhyTheFallbackDecides checks that the log states why the Fallback decides.
func TestLogSaysWhyTheFallbackDecides(t *testing.T) {
	var log logBuffer
	l := fixedLimiter{Decision: window.Decision{Allowed: true, Degraded: true, Cause: errors.New("NOPERM")}}
	ask(middleware(httplimit.Config{Limiter: l, Log: log.loggerOf("level", "err")}).Wrap(fine))
	if log.String() != "level=WARN err=NOPERM\n" {
		t.Error(log.String())
	}
}
