package httplimit_test

import (
	"context"
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

// What is told of an outage, and of a Fallback.
const (
	lineOut      = `level=ERROR msg="slidegate: the limiter cannot decide about requests"` + "\n"
	lineDegraded = `level=WARN msg="slidegate: the limiter's Fallback decides about requests, by its own limits"` + "\n"
	lineSound    = `level=INFO msg="slidegate: the limiter decides about requests again"` + "\n"
)

// answered is a status, and whether the fields of a limit are there.
func answered(w *httptest.ResponseRecorder) string {
	return fmt.Sprint(w.Code, " ", w.Header().Get("RateLimit-Policy"))
}

// TestOutage: what clients get before, while and after Redis is killed, or hangs, and what the log says: once at the begin, once at the end. 16 clients keep
// asking all the time, and none waits much longer than the Timeout.
func TestOutage(t *testing.T) {
	const timeout = 500 * time.Millisecond
	ways := []struct {
		name   string
		outage httplimit.Outage
		falls  bool
		during string
		begin  string
	}{
		{"Open", httplimit.Open, false, `200 `, lineOut},
		{"Closed", httplimit.Closed, false, `503 `, lineOut},
		{"Fallback", httplimit.Closed, true, `200 "900000/1h@1m";q=900000;w=3600`, lineDegraded},
	}
	const usual = `200 "1000000/1h@1m";q=1000000;w=3600`
	for name, trouble := range map[string]func(s *redistest.Server) (end func()){
		"killed": func(s *redistest.Server) func() { s.Kill(t); return func() { s.Restart(t) } },
		"hung":   func(s *redistest.Server) func() { s.Pause(t); return func() { s.Resume(t) } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			client := s.Client(t)
			var crowds []*crowd
			for _, of := range ways {
				cfg := window.Config{Name: redistest.Key(t), Limits: parsed("1000000/1h"), Timeout: timeout}
				if of.falls {
					cfg.Fallback = inMemory(nil, "900000/1h")
				}
				c := &crowd{log: new(record)}
				c.handler = middleware(httplimit.Config{Limiter: must(window.New(client, cfg)), Outage: of.outage, Log: c.log.logger()}).Wrap(fine)
				crowds = append(crowds, c)
				defer c.gather(16)()
			}
			for i, of := range ways {
				crowds[i].await(t, of.name+" before", usual, "")
			}
			end := trouble(s)
			for i, of := range ways {
				crowds[i].await(t, of.name+" in the outage", of.during, of.begin)
			}
			end()
			for i, of := range ways {
				crowds[i].await(t, of.name+" after", usual, of.begin+lineSound)
			}
			for i, of := range ways {
				if longest := time.Duration(crowds[i].longest.Load()); longest > 1500*time.Millisecond { // rueidis alone gives up after 2 s
					t.Errorf("%s: a request took %v", of.name, longest)
				}
			}
		})
	}
}

// A crowd is clients of a handler that keep asking.
type crowd struct {
	handler http.Handler
	log     *record
	longest atomic.Int64
	last    sync.Map // answers by client
}

// gather has clients ask until they are dismissed.
func (c *crowd) gather(clients int) (dismiss func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for tick := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				begin := time.Now()
				c.last.Store(i, answered(ask(c.handler)))
				took := int64(time.Since(begin))
				for l := c.longest.Load(); took > l && !c.longest.CompareAndSwap(l, took); l = c.longest.Load() {
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// await returns once all clients get this answer, and the log has these lines, and fails if neither comes.
func (c *crowd) await(t *testing.T, what, answer, lines string) {
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

// A switchboard is a limiter whose answer a test chooses.
type switchboard struct{ script }

func (s *switchboard) AllowN(context.Context, string, int64) (window.Decision, error) {
	return s.Decision, s.err
}

// TestShardOut: while requests on one shard of a cluster fail and those on others do not, the log has one line; and one more once none has failed for
// five seconds.
func TestShardOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log record
		var s switchboard
		h := middleware(httplimit.Config{Limiter: &s, Outage: httplimit.Open, Log: log.logger()}).Wrap(fine)
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
		check("in the outage", lineOut)
		s.err = nil
		ask(h)
		check("a second after", lineOut)
		<-time.After(4 * time.Second)
		ask(h)
		check("five seconds after", lineOut+lineSound)
		ask(h)
		check("later", lineOut+lineSound)
	})
}

// TestStatesInTurn: the Fallback takes over, gives no answer either, takes over again, and is no longer needed.
func TestStatesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log record
		var s switchboard
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
		if want := lineDegraded + lineOut + lineDegraded + lineSound; log.String() != want {
			t.Errorf("not\n%sbut\n%s", want, &log)
		}
	})
}

// TestNoOutage: a request of more units than a limit admits is told so, and not the log.
func TestNoOutage(t *testing.T) {
	var log record
	h := middleware(httplimit.Config{Limiter: inMemory(nil, "1/1h"), Cost: func(*http.Request) int64 { return 2 }, Outage: httplimit.Open, Log: log.logger()}).Wrap(fine)
	if w := ask(h); w.Code != http.StatusRequestEntityTooLarge || log.String() != "" {
		t.Errorf("%d, %q", w.Code, &log)
	}
}

// TestHammering: with a DenialCache, who keeps asking is denied although Redis hangs, at once and with what is left of the wait.
func TestHammering(t *testing.T) {
	s := redistest.Start(t)
	l := must(window.New(s.Client(t), window.Config{Name: redistest.Key(t), Limits: parsed("1/1h"), DenialCache: 10}))
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

// TestNoRecord: a value in Redis that is not of this library is as an outage for its client, and the log says which key it is.
func TestNoRecord(t *testing.T) {
	client, name := redistest.Client(t), redistest.Key(t)
	l := must(window.New(client, window.Config{Name: name, Limits: parsed("1/1h")}))
	if err := client.Do(t.Context(), client.B().Set().Key(name+":{everybody}:w").Value("foreign").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	var log record
	w := ask(middleware(httplimit.Config{Limiter: l, Log: log.loggerOf("err")}).Wrap(fine))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(log.String(), name+":{everybody}:w") {
		t.Errorf("%d, %q", w.Code, &log)
	}
}

// TestSecretStaysSecret: with a Secret, the log does not tell the key of a request, whatever goes wrong.
func TestSecretStaysSecret(t *testing.T) {
	s := redistest.Start(t)
	l := must(window.New(s.Client(t), window.Config{Name: redistest.Key(t), Limits: parsed("1/1h"), Secret: []byte("0123456789abcdef"), Timeout: 10 * time.Second}))
	var log record
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
