package httplimit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// writeStatus is a handler that responds with the status in the query.
var writeStatus = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	var status int
	_, _ = fmt.Sscan(r.URL.Query().Get("status"), &status)
	w.WriteHeader(status)
})

// TestNoneSlipsPast checks that only five of 64 concurrent guesses reach the handler.
func TestNoneSlipsPast(t *testing.T) {
	l := must(window.New(window.On(redistest.Client(t)), window.Config{Name: redistest.Key(t), Limits: limits("5/1h"), Timeout: time.Minute}))
	var inside, most, wrong atomic.Int64
	arrived, release := make(chan struct{}, 64), make(chan struct{})
	h := middleware(httplimit.Config{Limiter: l, CountOnly: isFailure}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := inside.Add(1)
		defer inside.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		arrived <- struct{}{}
		<-release
		wrong.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	var denied sync.WaitGroup
	var all sync.WaitGroup
	denied.Add(59)
	for range 64 {
		all.Go(func() {
			if ask(h).Code == http.StatusTooManyRequests {
				denied.Done()
			}
		})
	}
	denied.Wait() // while the handler still runs for all five
	for range 5 {
		<-arrived
	}
	close(release)
	all.Wait()
	if most.Load() != 5 || wrong.Load() != 5 {
		t.Errorf("%d at once, %d in all", most.Load(), wrong.Load())
	}
	checkUsed(t, l, 5)
}

// TestStatus checks the status that CountOnly gets for every way in which a handler can set a
// status, or set none.
func TestStatus(t *testing.T) {
	for name, of := range map[string]struct {
		want int // 0: CountOnly is not called, and the request counts
		h    http.HandlerFunc
	}{
		"nothing": {200, func(http.ResponseWriter, *http.Request) {}},
		"a body": {200, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(nil)
			w.WriteHeader(http.StatusUnauthorized)
		}},
		"a string": {200, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "a")
			w.WriteHeader(http.StatusUnauthorized)
		}},
		"a copy": {200, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, onlyReader{})
			w.WriteHeader(http.StatusUnauthorized)
		}},
		"an empty copy": {401, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, strings.NewReader(""))
			w.WriteHeader(http.StatusUnauthorized)
		}},
		"an empty copy without WriteTo": {401, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, io.LimitReader(strings.NewReader(""), 1))
			w.WriteHeader(http.StatusUnauthorized)
		}},
		"an invalid status": {401, func(w http.ResponseWriter, _ *http.Request) {
			func() {
				defer func() { _ = recover() }()
				w.WriteHeader(1000)
			}()
			w.WriteHeader(http.StatusUnauthorized)
		}},
		"a flush": {200, func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			w.WriteHeader(http.StatusUnauthorized)
		}},
		"the controller": {200, func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			w.WriteHeader(http.StatusUnauthorized)
		}},
		"a status": {401, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }},
		"a status, and more": {401, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write(nil)
		}},
		"early hints": {403, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusContinue)
			w.WriteHeader(http.StatusForbidden)
		}},
		"only early hints": {200, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) }},
		"a redirection":    {302, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }},
		"another protocol": {101, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Upgrade", "a")
			w.WriteHeader(http.StatusSwitchingProtocols)
		}},
		"the connection":       {101, takeOver},
		"a panic":              {0, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"a panic, after a 200": {0, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a")); panic(http.ErrAbortHandler) }},
	} {
		t.Run(name, func(t *testing.T) {
			l := inMemory(nil, "1/1h")
			statuses := make(chan int, 1)
			m := middleware(httplimit.Config{Limiter: l, CountOnly: func(status int) bool { statuses <- status; return false }})
			done := make(chan struct{})
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { defer close(done); m.Wrap(of.h).ServeHTTP(w, r) }))
			s.Config.ErrorLog = discardLog
			s.Start()
			defer s.Close()
			conn := connect(s)
			defer conn.Close()
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			<-done
			close(statuses)
			if got := <-statuses; got != of.want {
				t.Errorf("%d, not %d", got, of.want)
			}
			checkUsed(t, l, int64(btoi(of.want == 0)))
		})
	}
}

// onlyReader returns one byte. It has no WriteTo, so that io.Copy calls the writer's ReadFrom.
type onlyReader struct{}

func (onlyReader) Read(b []byte) (int, error) { return copy(b, "a"), io.EOF }

// TestHungFinish checks that a limiter that hangs, in Refund or in Settle, delays the end of a
// response by at most five seconds.
func TestHungFinish(t *testing.T) {
	for _, cfg := range []httplimit.Config{{CountOnly: isFailure}, {Cost: estimate(10), CostAfter: sent}} {
		synctest.Test(t, func(t *testing.T) {
			var log logBuffer
			cfg.Limiter, cfg.Log = hanging{inMemory(nil, "50/1h")}, log.logger()
			begin := time.Now()
			w := ask(middleware(cfg).Wrap(fine))
			if took := time.Since(begin); took != 5*time.Second || w.Code != http.StatusOK || log.String() == "" {
				t.Errorf("%v, %d, %q", took, w.Code, &log)
			}
		})
	}
}

// hanging is a limiter whose Refund and Settle hang until the context is done.
type hanging struct{ *window.Limiter }

func (hanging) Refund(ctx context.Context, _ string, _ window.Decision) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hanging) Settle(ctx context.Context, _ string, _ window.Decision, _ int64) (window.Decision, error) {
	<-ctx.Done()
	return window.Decision{}, ctx.Err()
}

// TestUpload checks that a request is charged before its body is sent, and that a denial does not
// wait for the body.
func TestUpload(t *testing.T) {
	s := httptest.NewServer(middleware(httplimit.Config{Limiter: inMemory(nil, "1/1h"), CountOnly: isFailure}).Wrap(writeStatus))
	defer s.Close()
	_ = send(t, s.Client(), request(t, http.MethodGet, s.URL+"?status=401", nil))
	conn := connect(s)
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /?status=401 HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 429 ") {
		t.Errorf("%q, %v", line, err)
	}
}
