package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
	"github.com/slidegate/slidegate/windowtest"
)

// TestInFlightConfig checks which configurations NewInFlight rejects, and that the errors state the
// remedy.
func TestInFlightConfig(t *testing.T) {
	l := places(1)
	for want, cfg := range map[string]httplimit.InFlightConfig{
		"no Places":             {Key: everybody, Outage: httplimit.FailOpen},
		"no Key":                {Places: l, Outage: httplimit.FailOpen},
		`the Outage ""`:         {Places: l, Key: everybody},
		"uninitialized Limiter": {Places: &inflight.Limiter{}, Key: everybody, Outage: httplimit.FailOpen},
		"a Wait of -1ns":        {Places: l, Key: everybody, Outage: httplimit.FailOpen, Wait: -1},
	} {
		if _, err := httplimit.NewInFlight(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
}

// TestInFlightGivesBack checks, with a real server, that a request's place is free as soon as the
// handler has returned or panicked or, if the handler hijacked the connection, the connection is
// closed.
func TestInFlightGivesBack(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"returns": fine,
		"streams": func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				_, _ = io.WriteString(w, "part")
				_ = http.NewResponseController(w).Flush()
			}
		},
		"panics":             func(http.ResponseWriter, *http.Request) { panic("a mistake") },
		"aborts":             func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"hijacks and closes": takeOver,
	} {
		t.Run(name, func(t *testing.T) {
			l := placesInRedis(t, 1)
			limited := inFlight(httplimit.InFlightConfig{Places: l}).Wrap(h)
			over := make(chan struct{})
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					checkHeld(t, l, "everybody", 0)
					close(over)
				}()
				limited.ServeHTTP(w, r)
			}))
			s.Config.ErrorLog = discardLog
			s.Start()
			defer s.Close()
			if response, err := s.Client().Do(request(t, http.MethodPost, s.URL, nil).WithContext(aMinute(t))); err == nil {
				_ = response.Body.Close()
			}
			<-over
		})
	}
}

// unwrapped is a ResponseWriter that has no optional methods except Unwrap.
type unwrapped struct{ http.ResponseWriter }

func (u unwrapped) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// TestInFlightHijack checks that a hijacked connection keeps its place until it is closed, even
// after the handler has returned, and even if an outer ResponseWriter must be unwrapped to hijack
// the connection.
func TestInFlightHijack(t *testing.T) {
	l := placesInRedis(t, 1)
	end, ended, returned := make(chan struct{}), make(chan struct{}), make(chan struct{}, 2)
	h := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		go func() {
			<-end
			_ = conn.Close()
			checkHeld(t, l, "everybody", 0)
			close(ended)
		}()
	}
	limited := inFlight(httplimit.InFlightConfig{Places: l}).Wrap(http.HandlerFunc(h))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limited.ServeHTTP(unwrapped{w}, r)
		returned <- struct{}{}
	}))
	defer s.Close()
	response, err := s.Client().Do(request(t, http.MethodGet, s.URL, nil).WithContext(aMinute(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got := send(t, s.Client(), request(t, http.MethodGet, s.URL, nil)); got.status != http.StatusTooManyRequests {
		t.Error(got)
	}
	<-returned // a handler holds its place until it has returned
	<-returned
	close(end)
	<-ended
}

// TestInFlightHijackGoesOn checks that a handler that has closed its hijacked connection keeps its
// place and its context until it returns.
func TestInFlightHijackGoesOn(t *testing.T) {
	l := places(1)
	s := httptest.NewServer(inFlight(httplimit.InFlightConfig{Places: l}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		takeOver(w, r)
		checkHeld(t, l, "everybody", 1)
		if err := r.Context().Err(); err != nil {
			t.Error(err)
		}
	})))
	defer s.Close()
	_ = send(t, s.Client(), request(t, http.MethodGet, s.URL, nil))
	awaitFree(t, l, "everybody")
}

// TestInFlightHijackLost checks that a hijacked connection is closed if the lease is lost.
func TestInFlightHijackLost(t *testing.T) {
	closed := make(chan struct{})
	s := httptest.NewServer(inFlight(httplimit.InFlightConfig{Places: brief()}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
		}
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			close(closed)
		}()
	})))
	defer s.Close()
	conn := connect(s)
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-closed
}

// TestInFlightClientLeaves checks that if the client disconnects, the handler's context is
// canceled, but the request keeps its place until the handler returns.
func TestInFlightClientLeaves(t *testing.T) {
	l := placesInRedis(t, 1)
	began, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	limited := inFlight(httplimit.InFlightConfig{Places: l}).Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		if errors.Is(context.Cause(r.Context()), inflight.ErrLost) {
			t.Error("the lease is lost")
		}
		<-end
	}))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		limited.ServeHTTP(w, r)
		checkHeld(t, l, "everybody", 0)
	}))
	defer s.Close()
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-began
		leave()
	}()
	if response, err := s.Client().Do(request(t, http.MethodGet, s.URL, nil).WithContext(ctx)); err == nil {
		_ = response.Body.Close()
		t.Error("it got a response")
	}
	if w := ask(limited); w.Code != http.StatusTooManyRequests {
		t.Error(w.Code)
	}
	checkHeld(t, l, "everybody", 1)
	close(end)
	<-ended
}

// TestInFlightGoesOn checks that a request continues after losing its lease with FailOpen during an
// outage. With FailClosed, its context is canceled with the cause ErrLost.
func TestInFlightGoesOn(t *testing.T) {
	t.Parallel()
	for _, outage := range []httplimit.Outage{httplimit.FailOpen, httplimit.FailClosed} {
		t.Run(string(outage), func(t *testing.T) {
			server := redistest.Start(t)
			lost := make(chan struct{})
			l := must(inflight.New(window.On(server.Client(t)), inflight.Config{
				Name: redistest.Key(t), Max: 1, TTL: 3 * time.Second, Timeout: time.Second,
				Observe: func(_ context.Context, o window.Observation) {
					if o.Kind == inflight.KindLost {
						close(lost)
					}
				},
			}))
			ask(inFlight(httplimit.InFlightConfig{Places: l, Outage: outage, Log: new(logBuffer).logger()}).Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				server.Kill(t)
				if <-lost; outage == httplimit.FailClosed {
					<-r.Context().Done()
					if err := context.Cause(r.Context()); !errors.Is(err, inflight.ErrLost) {
						t.Error(err)
					}
					return
				}
				select {
				case <-r.Context().Done():
					t.Error(context.Cause(r.Context()))
				case <-time.After(20 * time.Millisecond): // a context would be canceled immediately
				}
			})))
		})
	}
}

// TestInFlightHangs checks that no request gets HTTP 429 while Redis hangs, whether it called Redis
// itself or waited in line.
func TestInFlightHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := window.On(server.Client(t))
	server.Pause(t)
	for i, wait := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond} {
		for outage, want := range map[httplimit.Outage]int{httplimit.FailOpen: http.StatusOK, httplimit.FailClosed: http.StatusServiceUnavailable} {
			l := must(inflight.New(conn, inflight.Config{Name: fmt.Sprint("places", i, outage), Max: 100}))
			h := inFlight(httplimit.InFlightConfig{Places: l, Outage: outage, Wait: wait, Log: new(logBuffer).logger()}).Wrap(fine)
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					if w := ask(h); w.Code != want {
						t.Errorf("%s, a Wait of %v: %d", outage, wait, w.Code)
					}
				})
			}
			all.Wait()
		}
	}
}

// TestInFlightFallback checks that the log reports once that the Fallback decides, and why, with and
// without a Wait.
func TestInFlightFallback(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Minute} {
		var log logBuffer
		l := must(inflight.New(windowtest.Down(), inflight.Config{Name: "jobs", Max: 1, Fallback: places(1)}))
		h := inFlight(httplimit.InFlightConfig{Places: l, Wait: wait, Log: log.loggerOf("level", "limiter", "err")}).Wrap(fine)
		for range 2 {
			if w := ask(h); w.Code != http.StatusOK {
				t.Error(w.Code)
			}
		}
		log.explains(t, "jobs")
	}
}

// TestInFlightDenies checks the response to a request that gets no place. At first, Retry-After is
// a second. Later it is how long requests have recently held their places, up to a minute.
func TestInFlightDenies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const body = `{"title":"Too Many Requests","status":429,"detail":"Too many requests are running at the same time. Try again after the time in Retry-After, or when one has ended."}` + "\n"
		l := places(1)
		var took time.Duration
		h := inFlight(httplimit.InFlightConfig{Places: l}).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-time.After(took) }))
		for _, test := range []struct {
			took time.Duration
			want string
		}{{0, "1"}, {4500 * time.Millisecond, "5"}, {20500 * time.Millisecond, "7"}, {time.Hour - time.Second, "60"}} {
			if took = test.took; took > 0 {
				ask(h)
			}
			lease := must(l.Acquire(t.Context(), "everybody"))
			if w := ask(h); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != test.want || w.Body.String() != body {
				t.Errorf("after a request of %v: %d, %v, %s", took, w.Code, w.Header(), w.Body)
			}
			_ = lease.Release(t.Context())
		}
	})
}

// TestInFlightRetryAfter checks that Retry-After is no shorter than the t of an outer middleware.
func TestInFlightRetryAfter(t *testing.T) {
	l := places(1)
	_ = must(l.Acquire(t.Context(), "everybody"))
	h := middleware(httplimit.Config{Limiter: inMemory(nil, "1/1h")}).Wrap(inFlight(httplimit.InFlightConfig{Places: l}).Wrap(fine))
	if w := ask(h); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "3600" {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
}

// TestInFlightWaits checks that a request waits for a place for at most Wait. If its client
// disconnects or its deadline passes during the wait, that does not count as an outage, in which
// FailOpen would let the request run.
func TestInFlightWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		l := places(1)
		h := inFlight(httplimit.InFlightConfig{Places: l, Outage: httplimit.FailOpen, Wait: 2 * time.Second, Log: log.logger()}).Wrap(fine)
		for _, test := range []struct {
			held, left, deadline time.Duration // when the place becomes free, the client disconnects, and the deadline passes
			want                 int
			took                 time.Duration // the minimum; it may take up to 100 ms longer
		}{
			{time.Second, time.Hour, time.Hour, http.StatusOK, time.Second},
			{time.Minute, time.Hour, time.Hour, http.StatusTooManyRequests, 2 * time.Second},
			{time.Minute, time.Second, time.Hour, http.StatusServiceUnavailable, time.Second},
			{time.Minute, time.Hour, time.Second, http.StatusServiceUnavailable, time.Second},
		} {
			lease := must(l.Acquire(t.Context(), "everybody"))
			time.AfterFunc(test.held, func() { _ = lease.Release(t.Context()) })
			ctx, leave := context.WithTimeout(t.Context(), test.deadline)
			time.AfterFunc(test.left, leave)
			began := time.Now()
			w := ask(h, func(r *http.Request) { *r = *r.WithContext(ctx) })
			if took := time.Since(began); w.Code != test.want || took < test.took || took > test.took+100*time.Millisecond {
				t.Errorf("%+v: %d after %v", test, w.Code, took)
			}
			leave()
			_ = lease.Release(t.Context())
		}
		<-time.After(time.Hour) // for the timers
		if log.String() != "" {
			t.Error(&log)
		}
	})
}

// TestInFlightOutage checks what happens to requests while Redis is down, and what is logged.
func TestInFlightOutage(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Minute} {
		t.Run(wait.String(), func(t *testing.T) {
			t.Parallel()
			testInFlightOutage(t, wait)
		})
	}
}

func testInFlightOutage(t *testing.T, wait time.Duration) {
	server := redistest.Start(t)
	l := must(inflight.New(window.On(server.Client(t)), inflight.Config{Name: redistest.Key(t), Max: 1, TTL: time.Hour, Timeout: time.Minute}))
	var log logBuffer
	open := inFlight(httplimit.InFlightConfig{Places: l, Wait: wait, Outage: httplimit.FailOpen, Log: log.logger()}).Wrap(fine)
	closed := inFlight(httplimit.InFlightConfig{Places: l, Wait: wait, Log: log.logger()}).Wrap(fine)
	server.Kill(t)
	for range 2 {
		if w := ask(open); w.Code != http.StatusOK {
			t.Error(w.Code)
		}
		if w := ask(closed); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
			t.Error(w.Code, w.Header())
		}
	}
	server.Restart(t)
	redistest.Eventually(t, "the log reports the end of the outage", func() bool {
		ask(open)
		ask(closed)
		return log.String() == strings.Repeat(lineOutage, 2)+strings.Repeat(lineRecovered, 2)
	})
}

// TestPattern checks that an outer handler sees the pattern that matched in an inner mux.
func TestPattern(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", fine)
	for name, h := range map[string]http.Handler{
		"InFlight":  inFlight(httplimit.InFlightConfig{Places: places(1)}).Wrap(mux),
		"CostAfter": middleware(httplimit.Config{Limiter: inMemory(nil, "1/1h"), CostAfter: reported}).Wrap(mux),
	} {
		ask(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if h.ServeHTTP(w, r); r.Pattern != "GET /{$}" {
				t.Errorf("%s: %q", name, r.Pattern)
			}
		}))
	}
}

// TestInFlightKeyless checks that a request without a key is refused, and that the first one is
// logged.
func TestInFlightKeyless(t *testing.T) {
	var log logBuffer
	h := inFlight(httplimit.InFlightConfig{Places: places(1), Key: httplimit.Header("X-Key"), Log: log.loggerOf("reason")}).Wrap(fine)
	for range 2 {
		if w := ask(h); w.Code != http.StatusBadRequest {
			t.Error(w.Code)
		}
	}
	if log.String() != `reason="the header X-Key is missing or empty"`+"\n" {
		t.Error(&log)
	}
}
