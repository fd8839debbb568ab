package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// plan sets the plan of a request.
func plan(name string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Plan", name) }
}

// byPlan returns a function for Config.Choose that chooses from plans.
func byPlan(plans map[string]httplimit.Limiter) func(*http.Request) (httplimit.Limiter, error) {
	return func(r *http.Request) (httplimit.Limiter, error) { return plans[r.Header.Get("Plan")], nil }
}

// TestChoose checks that each request is limited by the limiter that Choose returns, and which
// responses unlimited and blocked clients get.
func TestChoose(t *testing.T) {
	free := named("plans", "1/1h")
	plans := map[string]httplimit.Limiter{"free": free, "pro": must(free.With(limits("3/1h")...)), "staff": httplimit.Unlimited, "closed": httplimit.Blocked}
	var denied []window.Decision
	for _, cfg := range []httplimit.Config{
		{},
		{CountOnly: func(int) bool { return true }, CostAfter: reported},
		{Denied: func(w http.ResponseWriter, _ *http.Request, d window.Decision) {
			denied = append(denied, d)
			w.WriteHeader(http.StatusTeapot)
		}},
	} {
		_ = free.Reset(t.Context(), "everybody")
		cfg.Choose = byPlan(plans)
		h, custom := middleware(cfg).Wrap(fine), cfg.Denied != nil
		for i, of := range []struct {
			plan   string
			status int
			fields string
		}{
			{"free", 200, `"1/1h";r=0;t=3600 `},
			{"free", 429, `"1/1h";r=0;t=3600 3600`},
			{"pro", 200, `"3/1h";r=1 `},
			{"pro", 200, `"3/1h";r=0;t=3600 `},
			{"pro", 429, `"3/1h";r=0;t=3600 3600`},
			{"staff", 200, " "},
			{"staff", 200, " "},
			{"closed", 403, " "},
		} {
			w := ask(h, plan(of.plan))
			got := w.Header().Get("RateLimit") + " " + w.Header().Get("Retry-After")
			if w.Code != of.status && (!custom || w.Code != http.StatusTeapot || of.status < 400) || got != of.fields {
				t.Errorf("%d: %d, %q", i, w.Code, got)
			}
			const body = `{"title":"Forbidden","status":403,"detail":"The server does not accept this request. Waiting does not change that."}` + "\n"
			if of.plan == "closed" && !custom && w.Body.String() != body {
				t.Error(w.Body)
			}
		}
	}
	if len(denied) != 3 || denied[2].RetryAfter != 0 || denied[2].Usage != nil {
		t.Errorf("%+v", denied)
	}
}

// TestChooseSettles checks that refunds and settlements go to the limiter that allowed the request.
func TestChooseSettles(t *testing.T) {
	one, two := inMemory(nil, "9/1h"), inMemory(nil, "9/1h")
	plans := map[string]httplimit.Limiter{"one": one, "two": two, "staff": httplimit.Unlimited}
	h := middleware(httplimit.Config{
		Choose: byPlan(plans), CostAfter: reported, CountOnly: func(status int) bool { return status == http.StatusOK },
	}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httplimit.SetCost(r.Context(), 3)
		if r.ContentLength > 0 {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	for name := range plans {
		ask(h, plan(name))
		ask(h, plan(name), func(r *http.Request) { r.ContentLength = 1 })
	}
	checkUsed(t, one, 3)
	checkUsed(t, two, 3)
}

// TestChooseFails checks that a request for which there is no limiter is handled as in an outage,
// and that the reason is logged: an error from Choose once, because it can affect all requests, and
// a programming mistake each time.
func TestChooseFails(t *testing.T) {
	level := must(ar1.NewLocal(ar1.Config{Name: "level", Limits: limits("5/1h")}))
	mistake := func(text string) string {
		return strings.Repeat(`level=ERROR msg="slidegate: a request got no decision" err="`+text+`"`+"\n", 2)
	}
	for _, of := range []struct {
		limiter httplimit.Limiter
		err     error
		log     string
	}{
		{nil, fmt.Errorf("no row: %w", window.ErrExceedsLimit), `level=ERROR msg="slidegate: the limiter cannot decide" err="no limiter was found, because Choose failed: no row: ` + window.ErrExceedsLimit.Error() + `"` + "\n"},
		{nil, nil, mistake("the limiter is nil, although Choose returned no error; return a limiter, httplimit.Unlimited or httplimit.Blocked")},
		{(*window.Limiter)(nil), nil, mistake("the limiter is nil, although Choose returned no error; return a limiter, httplimit.Unlimited or httplimit.Blocked")},
		{level, nil, mistake("slidegate: httplimit has a CostAfter, but a Limiter without Settle, a *ar1.Limiter; use a *window.Limiter, or give yours a Settle method that calls that of a *window.Limiter")},
	} {
		for outage, want := range map[httplimit.Outage]int{httplimit.FailOpen: 200, httplimit.FailClosed: 503} {
			var log logBuffer
			h := middleware(httplimit.Config{
				Choose: func(*http.Request) (httplimit.Limiter, error) { return of.limiter, of.err },
				Outage: outage, CostAfter: reported, Log: log.loggerOf("level", "msg", "err"),
			}).Wrap(fine)
			for range 2 {
				if w := ask(h); w.Code != want {
					t.Error(w.Code)
				}
			}
			if log.String() != of.log {
				t.Errorf("the log has\n%snot\n%s", &log, of.log)
			}
		}
	}
}

// TestUnlimitedEndsNoOutage checks that requests that do not use Redis are not logged as the end of
// an outage.
func TestUnlimitedEndsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		plans := map[string]httplimit.Limiter{"free": fixedLimiter{err: window.ErrOutage}, "staff": httplimit.Unlimited}
		h := middleware(httplimit.Config{Choose: byPlan(plans), Log: log.logger()}).Wrap(fine)
		ask(h, plan("free"))
		<-time.After(time.Minute)
		ask(h, plan("staff"))
		if log.String() != lineOutage {
			t.Error(&log)
		}
	})
}

// TestSkip checks that a skipped request is not limited, and that no other function in Config is
// called for it.
func TestSkip(t *testing.T) {
	l := inMemory(nil, "1/1h")
	skip := func(r *http.Request) bool { return r.Header.Get("Plan") == "probe" }
	fails := errors.New("it was called for a skipped request")
	for _, cfg := range []httplimit.Config{
		{Limiter: l, Skip: skip, Key: func(r *http.Request) string {
			if skip(r) {
				t.Error(fails)
			}
			return "everybody"
		}},
		{Skip: skip, Checks: func(r *http.Request) []window.Check {
			if skip(r) {
				t.Error(fails)
			}
			return []window.Check{{Limiter: l, Event: "everybody"}}
		}},
	} {
		_ = l.Reset(context.Background(), "everybody")
		h := middleware(cfg).Wrap(fine)
		for i, of := range []struct {
			plan string
			want int
		}{{"", 200}, {"", 429}, {"probe", 200}} {
			if w := ask(h, plan(of.plan)); w.Code != of.want || of.plan == "probe" && w.Header().Get("RateLimit") != "" {
				t.Errorf("%d: %d, %v", i, w.Code, w.Header())
			}
		}
	}
}
