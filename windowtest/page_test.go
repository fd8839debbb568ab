package windowtest_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
	"github.com/slidegate/slidegate/windowtest"
)

// TestPage checks that each snippet of docs/testing.md occurs in this file, which runs it.
func TestPage(t *testing.T) {
	page, here := string(must(os.ReadFile("../docs/testing.md"))), string(must(os.ReadFile("page_test.go")))
	snippets := regexp.MustCompile("(?s)```go\n(.*?\n)```\n").FindAllStringSubmatch(page, -1)
	if len(snippets) < 5 {
		t.Errorf("docs/testing.md has only %d snippets", len(snippets))
	}
	for _, s := range snippets {
		if !strings.Contains(here, "\n"+s[1]) {
			t.Errorf("docs/testing.md has code that no test runs:\n%s", s[1])
		}
	}
}

// signUp answers 200 if an address may sign up, 429 and the wait if it must wait, and 503 in an outage.
func signUp(ctx context.Context, limiter *window.Limiter, address string) (status int, wait time.Duration) {
	d, err := limiter.Allow(ctx, address)
	switch {
	case err != nil:
		return http.StatusServiceUnavailable, 0
	case !d.Allowed:
		return http.StatusTooManyRequests, d.RetryAfter
	}
	return http.StatusOK, 0
}

func TestOneSignUpAMinute(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	limiter, err := window.NewLocal(window.Config{
		Name: "sign-up", Limits: []window.Limit{window.Every(time.Minute)},
		Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	signUp(t.Context(), limiter, "192.0.2.1")
	signUp(t.Context(), limiter, "198.51.100.7")
	now = now.Add(20 * time.Second)
	if status, wait := signUp(t.Context(), limiter, "198.51.100.7"); status != 429 || wait != 40*time.Second {
		t.Errorf("status %d, wait %v", status, wait)
	}
	now = now.Add(40 * time.Second)
	if status, _ := signUp(t.Context(), limiter, "198.51.100.7"); status != 200 {
		t.Errorf("after the wait: status %d", status)
	}
}

func TestWorkerKeepsItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := window.NewLocal(window.Config{Name: "worker", Limits: []window.Limit{window.PerHour(1)}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range 3 {
			if _, err := limiter.Wait(t.Context(), "queue"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 2*time.Hour || took > 2*time.Hour+time.Minute {
			t.Errorf("3 calls took %v", took)
		}
	})
}

func TestSignUpInAnOutage(t *testing.T) {
	cfg := window.Config{Name: "sign-up", Limits: []window.Limit{window.Every(time.Minute)}}
	for name, conn := range map[string]*window.Connection{
		"Redis is down":     windowtest.Down(),       // window.ErrOutage: nothing was counted
		"the reply is lost": windowtest.Unanswered(), // window.ErrUncertain: it may have been counted
	} {
		limiter, err := window.New(conn, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if status, _ := signUp(t.Context(), limiter, "198.51.100.7"); status != 503 {
			t.Errorf("%s: status %d", name, status)
		}
	}
}

func TestSignUpWithFallback(t *testing.T) {
	cfg := window.Config{Name: "sign-up", Limits: []window.Limit{window.Every(time.Minute)}}
	fallback, err := window.NewLocal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Fallback = fallback
	limiter, err := window.New(windowtest.Down(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	d, err := limiter.Allow(t.Context(), "198.51.100.7")
	if err != nil || !d.Allowed || !d.Degraded || !errors.Is(d.Cause, window.ErrOutage) {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestTooManyRequests(t *testing.T) {
	limit, err := httplimit.New(httplimit.Config{
		Limiter: windowtest.DenyAfter(1), Key: httplimit.Clients{}.Key, Outage: httplimit.FailOpen,
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := limit.Wrap(http.NotFoundHandler()) // your handlers
	for _, want := range []int{http.StatusNotFound, http.StatusTooManyRequests} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)) // from 192.0.2.1
		if w.Code != want {
			t.Errorf("status %d, want %d: %s", w.Code, want, w.Body)
		}
	}
}
