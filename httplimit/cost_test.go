package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

func reported(u httplimit.Used) int64 { return u.Units }
func sent(u httplimit.Used) int64     { return u.Bytes }
func estimate(n int64) func(*http.Request) int64 {
	return func(*http.Request) int64 { return n }
}

// onBoth runs a test with a limiter on Redis, and with one in memory.
func onBoth(t *testing.T, limit string, test func(t *testing.T, l *window.Limiter)) {
	t.Run("Redis", func(t *testing.T) {
		test(t, must(window.New(redistest.Client(t), window.Config{Name: redistest.Key(t), Limits: parsed(limit)})))
	})
	t.Run("memory", func(t *testing.T) { test(t, inMemory(nil, limit)) })
}

// metered returns a middleware that charges 10 units and settles what the handler reports.
func metered(l httplimit.Limiter) *httplimit.Middleware {
	return middleware(httplimit.Config{Limiter: l, Cost: estimate(10), CostAfter: reported, Log: new(record).logger()})
}

// reports returns a handler that reports costs in turn.
func reports(costs ...int64) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		for _, cost := range costs {
			httplimit.SetCost(r.Context(), cost)
		}
	}
}

// TestCostAfter: what counts in the end is the last cost that a handler reports, or the estimate without a valid one.
func TestCostAfter(t *testing.T) {
	for _, of := range []struct {
		costs []int64
		want  int64
	}{{nil, 10}, {[]int64{3}, 3}, {[]int64{10}, 10}, {[]int64{25}, 25}, {[]int64{4, 90, 17}, 17}, {[]int64{0}, 0}, {[]int64{250}, 250}, {[]int64{-1}, 10}} {
		t.Run(fmt.Sprint(of.costs), func(t *testing.T) {
			onBoth(t, "100/1h", func(t *testing.T, l *window.Limiter) {
				inside := func(w http.ResponseWriter, r *http.Request) {
					used(t, l, 10)
					reports(of.costs...)(w, r)
				}
				w := ask(metered(l).Wrap(http.HandlerFunc(inside)))
				if left := w.Header().Get("RateLimit"); left != `"100/1h@1m";r=90` {
					t.Error(left)
				}
				used(t, l, of.want)
			})
		})
	}
}

// TestCostAboveMax: a request that cost more than is left is charged all the same, and the next is denied.
func TestCostAboveMax(t *testing.T) {
	onBoth(t, "20/1h", func(t *testing.T, l *window.Limiter) {
		h := metered(l).Wrap(reports(70))
		if first, second := ask(h).Code, ask(h).Code; first != http.StatusOK || second != http.StatusTooManyRequests {
			t.Error(first, second)
		}
		used(t, l, 70)
	})
}

// TestBytesSent: bytes count in all ways to write them, as many as the client gets.
func TestBytesSent(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"nothing":  func(http.ResponseWriter, *http.Request) {},
		"a status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"bytes": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 300))
			_, _ = w.Write([]byte("a"))
		},
		"a string": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") },
		"a copy":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, io.LimitReader(zeros{}, 70_000)) },
		"a file":   func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, "cost_test.go") },
		"refused": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			_, _ = w.Write(make([]byte, 5))
		},
		"too long": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "2")
			_, _ = w.Write([]byte("ab"))
			_, _ = w.Write([]byte("c"))
		},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			t.Run(name+" "+method, func(t *testing.T) {
				l := inMemory(nil, "1000000/1h")
				done := make(chan struct{})
				m := middleware(httplimit.Config{Limiter: l, CostAfter: sent})
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { defer close(done); m.Wrap(h).ServeHTTP(w, r) }))
				defer s.Close()
				text := send(t, s.Client(), request(t, method, s.URL, nil)).text
				<-done
				used(t, l, int64(len(text)))
			})
		}
	}
}

// TestCostOfPanic: a handler that panics gets nothing back, and is charged what it used above the estimate. The panic goes on.
func TestCostOfPanic(t *testing.T) {
	for _, of := range []struct{ cost, want int64 }{{-1, 10}, {3, 10}, {25, 25}} {
		onBoth(t, "100/1h", func(t *testing.T, l *window.Limiter) {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // it must be this one
					t.Error(p)
				}
				used(t, l, of.want)
			}()
			ask(metered(l).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				reports(of.cost)(w, r)
				panic(http.ErrAbortHandler)
			})))
		})
	}
}

// TestCostOfClientGone: a request is settled although its client has gone, also where CountOnly would not count its status.
func TestCostOfClientGone(t *testing.T) {
	for _, countOnly := range []func(int) bool{nil, failed} {
		for _, cost := range []int64{4, 40} {
			onBoth(t, "100/1h", func(t *testing.T, l *window.Limiter) {
				ctx, leave := context.WithCancel(t.Context())
				m := middleware(httplimit.Config{Limiter: l, Cost: estimate(10), CostAfter: reported, CountOnly: countOnly})
				h := m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					leave()
					<-r.Context().Done()
					reports(cost)(w, r)
				}))
				ask(h, func(r *http.Request) { *r = *r.WithContext(ctx) })
				used(t, l, cost)
			})
		}
	}
}

// TestCostOfStream: a handler that streams reports at the end. Until then the estimate counts, and when the client has the end, the cost does.
func TestCostOfStream(t *testing.T) {
	onBoth(t, "1000/1h", func(t *testing.T, l *window.Limiter) {
		next := make(chan struct{})
		s := httptest.NewServer(metered(l).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for token := range int64(30) {
				_, _ = io.WriteString(w, "token ")
				_ = http.NewResponseController(w).Flush()
				httplimit.SetCost(r.Context(), token+1)
			}
			<-next
		})))
		defer s.Close()
		response, err := s.Client().Do(request(t, http.MethodGet, s.URL, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		_ = must(io.ReadFull(response.Body, make([]byte, 30*len("token "))))
		used(t, l, 10)
		close(next)
		_ = must(io.ReadAll(response.Body))
		used(t, l, 30)
	})
}

// TestCostAtOnce: no more requests run at once than their estimates allow, and all costs add up.
func TestCostAtOnce(t *testing.T) {
	onBoth(t, "50/1h", func(t *testing.T, l *window.Limiter) {
		release := make(chan struct{})
		var denied, all sync.WaitGroup
		var mu sync.Mutex
		var next, total int64
		h := metered(l).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-release
			mu.Lock()
			next++
			cost := next * 7 % 23
			total += cost
			mu.Unlock()
			reports(cost)(w, r)
		}))
		denied.Add(59)
		for range 64 {
			all.Go(func() {
				if ask(h).Code == http.StatusTooManyRequests {
					denied.Done()
				}
			})
		}
		denied.Wait() // while five are inside
		close(release)
		all.Wait()
		if next != 5 {
			t.Errorf("%d were admitted", next)
		}
		used(t, l, total)
	})
}

// TestCostAndCountOnly: a response that does not count costs nothing, whatever its handler reports.
func TestCostAndCountOnly(t *testing.T) {
	onBoth(t, "100/1h", func(t *testing.T, l *window.Limiter) {
		m := middleware(httplimit.Config{Limiter: l, Cost: estimate(10), CostAfter: reported, CountOnly: func(status int) bool { return status < 500 }})
		for _, of := range []struct{ status, used int64 }{{502, 0}, {200, 25}, {503, 25}, {200, 50}} {
			ask(m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				reports(25)(w, r)
				w.WriteHeader(int(of.status))
			})))
			used(t, l, of.used)
		}
	})
}

// TestCostReachesAll: of middlewares around each other each gets the report, and an inner one alone what is reported within.
func TestCostReachesAll(t *testing.T) {
	outer, inner := inMemory(nil, "100/1h"), inMemory(nil, "100/1h")
	within := metered(inner).Wrap(reports(30))
	ask(metered(outer).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		within.ServeHTTP(w, r)
		httplimit.SetCost(r.Context(), 40)
	})))
	used(t, inner, 30)
	used(t, outer, 40)
	ask(metered(outer).Wrap(within))
	used(t, inner, 60)
	used(t, outer, 70)
}

// TestCostNotSettled: a request that is not limited is not settled, nor one that is denied or refused.
func TestCostNotSettled(t *testing.T) {
	full := inMemory(nil, "1/1h")
	_ = must(full.Allow(t.Context(), "everybody"))
	for name, cfg := range map[string]httplimit.Config{
		"free":                       {Limiter: full, Cost: estimate(0)},
		"admitted in an outage":      {Limiter: unable{full}, Outage: httplimit.Open},
		"denied":                     {Limiter: full},
		"denied in Shadow":           {Limiter: full, Shadow: true},
		"too costly":                 {Limiter: full, Cost: estimate(2)},
		"SetCost without CostAfter":  {Limiter: full, Shadow: true, CountOnly: failed},
		"SetCost without middleware": {},
	} {
		cfg.Log = new(record).logger()
		if name != "SetCost without CostAfter" {
			cfg.CostAfter = reported
		}
		h := http.Handler(reports(7))
		if cfg.Limiter != nil {
			h = middleware(cfg).Wrap(h)
		}
		ask(h)
		if d := must(full.Peek(t.Context(), "everybody")); d.Usage[0].Used != 1 {
			t.Errorf("%s: %d used", name, d.Usage[0].Used)
		}
	}
}

// unable is a limiter that gives no answer.
type unable struct{ *window.Limiter }

func (unable) AllowN(context.Context, string, int64) (window.Decision, error) {
	return window.Decision{}, window.ErrOutage
}

// TestCostInShadow: what is admitted in Shadow is settled as usual.
func TestCostInShadow(t *testing.T) {
	l := inMemory(nil, "100/1h")
	ask(middleware(httplimit.Config{Limiter: l, Cost: estimate(10), CostAfter: reported, Shadow: true}).Wrap(reports(60)))
	used(t, l, 60)
}

// TestCostInFallback: what a Fallback has admitted is settled in the Fallback.
func TestCostInFallback(t *testing.T) {
	s := redistest.Start(t)
	for _, cost := range []int64{4, 40} {
		fallback := inMemory(nil, "100/1h")
		l := must(window.New(s.Client(t), window.Config{Name: redistest.Key(t), Limits: parsed("100/1h"), Fallback: fallback}))
		s.Kill(t)
		ask(metered(l).Wrap(reports(cost)))
		used(t, fallback, cost)
		s.Restart(t)
		used(t, l, 0)
	}
}

// TestLostSettlement: a settlement that fails is logged, and so is a negative cost. The client gets its answer all the same.
func TestLostSettlement(t *testing.T) {
	for cost, want := range map[int64]string{
		25: `level=WARN msg="slidegate: the cost of a request could not be settled; its estimate may stand" estimate=10 actual=25 err=lost`,
		-4: `level=ERROR msg="slidegate: CostAfter returned a negative cost; the estimate stands" estimate=10 actual=-4`,
	} {
		var log record
		cfg := httplimit.Config{Limiter: unsettled{inMemory(nil, "100/1h")}, Cost: estimate(10), CostAfter: reported}
		cfg.Log = log.loggerOf("level", "msg", "estimate", "actual", "err")
		if w := ask(middleware(cfg).Wrap(reports(cost))); w.Code != http.StatusOK || log.String() != want+"\n" {
			t.Errorf("%d, %s", w.Code, &log)
		}
	}
}

// unsettled is a limiter that settles nothing.
type unsettled struct{ *window.Limiter }

func (unsettled) Settle(context.Context, string, window.Decision, int64) (window.Decision, error) {
	return window.Decision{}, errors.New("lost")
}

// TestHungSettlement: a limiter that may wait for ever delays the end of a response by five seconds at most.
func TestHungSettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		ask(metered(hangingSettle{inMemory(nil, "100/1h")}).Wrap(reports(25)))
		if took := time.Since(begin); took != 5*time.Second {
			t.Error(took)
		}
	})
}

// hangingSettle is a limiter that settles nothing until its caller gives up.
type hangingSettle struct{ *window.Limiter }

func (hangingSettle) Settle(ctx context.Context, _ string, _ window.Decision, _ int64) (window.Decision, error) {
	<-ctx.Done()
	return window.Decision{}, ctx.Err()
}

// TestNoSettle: New refuses CostAfter with a limiter that cannot settle, and the error says what to do.
func TestNoSettle(t *testing.T) {
	level := must(ar1.NewLocal(ar1.Config{Name: "level", Limits: parsed("5/1h")}))
	for _, l := range []httplimit.Limiter{level, script{}} {
		_, err := httplimit.New(httplimit.Config{Limiter: l, Key: everybody, Outage: httplimit.Open, CostAfter: reported})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%T; take a *window.Limiter", l)) {
			t.Error(err)
		}
	}
}

// TestFormsLeaveNoFiles: the server removes the files of a large form, as without the middleware.
func TestFormsLeaveNoFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	during := make(chan int, 1)
	s := httptest.NewServer(metered(inMemory(nil, "100/1h")).Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
		during <- len(must(os.ReadDir(dir)))
	})))
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	_ = must(must(form.CreateFormFile("file", "a")).Write(make([]byte, 20<<20)))
	_ = form.Close()
	r := request(t, http.MethodPost, s.URL, &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	_ = send(t, s.Client(), r)
	s.Close() // once the server is done with the request
	if d, after := <-during, len(must(os.ReadDir(dir))); d != 1 || after != 0 {
		t.Errorf("%d files during the request, %d after it", d, after)
	}
}

// TestCostOfConnection: what goes over a connection that the handler takes over is not counted as bytes.
func TestCostOfConnection(t *testing.T) {
	l := inMemory(nil, "100/1h")
	done := make(chan struct{})
	h := middleware(httplimit.Config{Limiter: l, CostAfter: sent}).Wrap(http.HandlerFunc(takeOver))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { defer close(done); h.ServeHTTP(w, r) }))
	defer s.Close()
	conn := must(net.Dial("tcp", s.Listener.Addr().String()))
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	_ = must(io.ReadAll(conn))
	<-done
	used(t, l, 0)
}
