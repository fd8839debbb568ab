package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// sent is a function for Config.CostAfter that returns the bytes sent.
func sent(u httplimit.Used) int64 { return u.Bytes }

// estimate returns a function for Config.Cost that always returns n.
func estimate(n int64) func(*http.Request) int64 {
	return func(*http.Request) int64 { return n }
}

// metered returns a middleware that charges an estimate of 10 units and then settles the cost that
// the handler reports.
func metered(l httplimit.Limiter) *httplimit.Middleware {
	return middleware(httplimit.Config{Limiter: l, Cost: estimate(10), CostAfter: reported, Log: new(logBuffer).logger()})
}

// reports returns a handler that reports the given costs, one after another.
func reports(costs ...int64) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		for _, cost := range costs {
			httplimit.SetCost(r.Context(), cost)
		}
	}
}

// TestCostAfter checks that the last cost that a handler reports counts, or the estimate if it
// reports no valid cost.
func TestCostAfter(t *testing.T) {
	for _, of := range []struct {
		costs []int64
		want  int64
	}{{nil, 10}, {[]int64{3}, 3}, {[]int64{10}, 10}, {[]int64{25}, 25}, {[]int64{4, 90, 17}, 17}, {[]int64{0}, 0}, {[]int64{250}, 250}, {[]int64{-1}, 10}} {
		t.Run(fmt.Sprint(of.costs), func(t *testing.T) {
			l := inMemory(nil, "100/1h")
			inside := func(w http.ResponseWriter, r *http.Request) {
				checkUsed(t, l, 10)
				reports(of.costs...)(w, r)
			}
			w := ask(metered(l).Wrap(http.HandlerFunc(inside)))
			if left := w.Header().Get("RateLimit"); left != `"100/1h";r=90` {
				t.Error(left)
			}
			checkUsed(t, l, of.want)
		})
	}
}

// TestBytesSent checks that exactly the bytes that the client receives count, however they are
// written.
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
				checkUsed(t, l, int64(len(text)))
			})
		}
	}
}

// TestCostOfPanic checks that a handler that panics gets no refund, and is charged for what it used
// above the estimate. The panic propagates.
func TestCostOfPanic(t *testing.T) {
	for _, of := range []struct{ cost, want int64 }{{-1, 10}, {3, 10}, {25, 25}} {
		t.Run(fmt.Sprint(of.cost), func(t *testing.T) {
			l := inMemory(nil, "100/1h")
			defer func() {
				if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // the panic must be this value
					t.Error(p)
				}
				checkUsed(t, l, of.want)
			}()
			ask(metered(l).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				reports(of.cost)(w, r)
				panic(http.ErrAbortHandler)
			})))
		})
	}
}

// TestCostOfClientGone checks that a request is settled even if its client has gone, and even if
// CountOnly would not count its status.
func TestCostOfClientGone(t *testing.T) {
	for _, countOnly := range []func(int) bool{nil, isFailure} {
		for _, cost := range []int64{4, 40} {
			l := must(window.New(window.On(redistest.Client(t)), window.Config{Name: redistest.Key(t), Limits: limits("100/1h"), Timeout: time.Minute}))
			ctx, leave := context.WithCancel(t.Context())
			m := middleware(httplimit.Config{Limiter: l, Cost: estimate(10), CostAfter: reported, CountOnly: countOnly})
			h := m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				leave()
				<-r.Context().Done()
				reports(cost)(w, r)
			}))
			ask(h, func(r *http.Request) { *r = *r.WithContext(ctx) })
			checkUsed(t, l, cost)
		}
	}
}

// TestCostAndCountOnly checks that a response that does not count costs nothing, whatever its
// handler reports.
func TestCostAndCountOnly(t *testing.T) {
	l := inMemory(nil, "100/1h")
	m := middleware(httplimit.Config{Limiter: l, Cost: estimate(10), CostAfter: reported, CountOnly: func(status int) bool { return status < 500 }})
	for _, of := range []struct{ status, used int64 }{{502, 0}, {200, 25}, {503, 25}, {200, 50}} {
		ask(m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reports(25)(w, r)
			w.WriteHeader(int(of.status))
		})))
		checkUsed(t, l, of.used)
	}
}

// TestCostReachesAll checks that a reported cost reaches all middlewares around the handler, and no
// others.
func TestCostReachesAll(t *testing.T) {
	outer, inner := inMemory(nil, "100/1h"), inMemory(nil, "100/1h")
	within := metered(inner).Wrap(reports(30))
	ask(metered(outer).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		within.ServeHTTP(w, r)
		httplimit.SetCost(r.Context(), 40)
	})))
	checkUsed(t, inner, 30)
	checkUsed(t, outer, 40)
	ask(metered(outer).Wrap(within))
	checkUsed(t, inner, 60)
	checkUsed(t, outer, 70)
}

// TestCostNotSettled checks that a request is not settled if it is not limited, denied or refused.
func TestCostNotSettled(t *testing.T) {
	full := inMemory(nil, "1/1h")
	_ = must(full.Allow(t.Context(), "everybody"))
	for name, cfg := range map[string]httplimit.Config{
		"free":                       {Limiter: full, Cost: estimate(0)},
		"allowed in an outage":       {Limiter: failingLimiter{full}, Outage: httplimit.FailOpen},
		"denied":                     {Limiter: full},
		"denied in Shadow":           {Limiter: full, Shadow: true},
		"too costly":                 {Limiter: full, Cost: estimate(2)},
		"SetCost without CostAfter":  {Limiter: full, Shadow: true, CountOnly: isFailure},
		"SetCost without middleware": {},
	} {
		cfg.Log = new(logBuffer).logger()
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

// failingLimiter is a limiter that returns ErrOutage.
type failingLimiter struct{ *window.Limiter }

func (failingLimiter) AllowN(context.Context, string, int64) (window.Decision, error) {
	return window.Decision{}, window.ErrOutage
}

// TestCostInShadow checks that allowed requests are settled as usual in Shadow.
func TestCostInShadow(t *testing.T) {
	l := inMemory(nil, "100/1h")
	ask(middleware(httplimit.Config{Limiter: l, Cost: estimate(10), CostAfter: reported, Shadow: true}).Wrap(reports(60)))
	checkUsed(t, l, 60)
}

// TestLostSettlement checks that failed refunds, failed settlements and negative costs are logged,
// and that the client still gets its response.
func TestLostSettlement(t *testing.T) {
	negative := func(httplimit.Used) int64 { return -4 }
	for want, cfg := range map[string]httplimit.Config{
		`level=WARN msg="slidegate: a request that does not count stays counted, because its refund failed" err=lost`:                   {CountOnly: isFailure},
		`level=WARN msg="slidegate: the cost of a request could not be settled; its estimate may stand" estimate=10 actual=25 err=lost`: {CostAfter: reported},
		`level=ERROR msg="slidegate: CostAfter returned a negative cost; the estimate stands" estimate=10 actual=-4`:                    {CostAfter: negative},
	} {
		var log logBuffer
		cfg.Limiter, cfg.Cost, cfg.Log = unsettled{inMemory(nil, "100/1h")}, estimate(10), log.loggerOf("level", "msg", "estimate", "actual", "err")
		if w := ask(middleware(cfg).Wrap(reports(25))); w.Code != http.StatusOK || log.String() != want+"\n" {
			t.Errorf("%d, %s", w.Code, &log)
		}
	}
}

// unsettled is a limiter whose Refund and Settle fail.
type unsettled struct{ *window.Limiter }

func (unsettled) Refund(context.Context, string, window.Decision) error { return errors.New("lost") }

func (unsettled) Settle(context.Context, string, window.Decision, int64) (window.Decision, error) {
	return window.Decision{}, errors.New("lost")
}

// TestNoSettle checks that New rejects CostAfter for a limiter that has no Settle, and that the
// error states the remedy.
func TestNoSettle(t *testing.T) {
	level := must(ar1.NewLocal(ar1.Config{Name: "level", Limits: limits("5/1h")}))
	for _, l := range []httplimit.Limiter{level, fixedLimiter{}} {
		_, err := httplimit.New(httplimit.Config{Limiter: l, Key: everybody, Outage: httplimit.FailOpen, CostAfter: reported})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%T; use a *window.Limiter", l)) {
			t.Error(err)
		}
	}
}

// TestFormsLeaveNoFiles checks that the server removes the files of a large form, as it does
// without the middleware.
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

// TestCostOfConnection checks that bytes written to a hijacked connection do not count.
func TestCostOfConnection(t *testing.T) {
	l := inMemory(nil, "100/1h")
	done := make(chan struct{})
	h := middleware(httplimit.Config{Limiter: l, CostAfter: sent}).Wrap(http.HandlerFunc(takeOver))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { defer close(done); h.ServeHTTP(w, r) }))
	defer s.Close()
	conn := connect(s)
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	_ = must(io.ReadAll(conn))
	<-done
	checkUsed(t, l, 0)
}
