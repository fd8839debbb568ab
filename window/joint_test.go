package window_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// awaitJoint waits until it is proved, for each limiter as the first in the call, that one server
// has the keys of all limiters.
func awaitJoint(tb testing.TB, calls *redistest.Calls, limiters ...*window.Limiter) {
	tb.Helper()
	var checks []window.Check
	for i, l := range limiters {
		checks = append(checks, window.Check{Limiter: l, Event: fmt.Sprint("warm-", i)})
	}
	for range checks {
		calls.AwaitSeveral(tb, func([]string) {
			_, _ = window.AllowAll(tb.Context(), checks...) // fails while a circuit breaker is open
			<-time.After(5 * time.Millisecond)
		})
		checks = append(checks[1:], checks[0])
	}
}

// TestJointFailures checks that nothing is counted if one of the keys cannot be counted, and that
// the error names that key.
func TestJointFailures(t *testing.T) {
	t.Parallel()
	calls := &redistest.Calls{}
	client := redistest.NewClient(t, calls.Count)
	conn := window.On(client)
	var limiters []*window.Limiter
	var checks []window.Check
	for i := range 3 {
		limiters = append(limiters, must(window.New(conn, window.Config{Name: fmt.Sprint(redistest.Key(t), i), Limits: parsed("5/1h"), Timeout: time.Minute})))
		checks = append(checks, window.Check{Limiter: limiters[i], Event: "e"})
	}
	awaitJoint(t, calls, limiters...)
	snapshot := must(limiters[1].Inspect(t.Context(), "e"))
	if err := client.Do(t.Context(), client.B().Rpush().Key(snapshot.Key).Element("foreign").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	j, err := window.AllowAll(t.Context(), checks...)
	if err == nil || !strings.Contains(err.Error(), snapshot.Key) || !strings.Contains(err.Error(), "(check 2 of AllowAll)") || errors.Is(err, window.ErrOutage) || j.Decisions != nil {
		t.Errorf("%+v, %v", j, err)
	}
	for _, i := range []int{0, 2} {
		if used := usedOf(t, limiters[i], "e"); used != 0 {
			t.Errorf("limiter %d counts %d", i, used)
		}
	}
	must(limiters[0].AllowN(t.Context(), "e", 5)) // now check 1 denies, which must not hide the error
	if j, err := window.AllowAll(t.Context(), checks...); err == nil || !strings.Contains(err.Error(), "(check 2 of AllowAll)") {
		t.Errorf("%+v, %v", j, err)
	}
}

// TestJointInAnOutage checks that if a joint call fails, the Fallbacks decide in order, up to a
// denial, and that their units are then refunded. If a limiter has no Fallback, the error must name
// all checks.
func TestJointInAnOutage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		checks   []int // indices of the limiters; the last one has no Fallback
		usedUp   bool  // whether the Fallback of the second one is used up
		allowed  bool
		asked    int
		counted0 int64 // by the Fallback of the first one
	}{
		{[]int{0, 1}, false, true, 2, 1},
		{[]int{0, 1}, true, false, 2, 0},
		{[]int{1, 0}, true, false, 1, 0},
		{[]int{0, 2}, false, false, 0, 0},
	} {
		calls, server := &redistest.Calls{}, redistest.Start(t)
		conn := window.On(server.NewClient(t, calls.Count))
		var limiters, fallbacks []*window.Limiter
		for i := range 3 {
			cfg := window.Config{Name: fmt.Sprint("outage", i), Limits: parsed("9/1h")}
			fallbacks = append(fallbacks, must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1/1h")})))
			if i < 2 {
				cfg.Fallback = fallbacks[i]
			}
			limiters = append(limiters, must(window.New(conn, cfg)))
		}
		awaitJoint(t, calls, limiters...)
		if test.usedUp {
			must(fallbacks[1].Allow(t.Context(), "e"))
		}
		server.Pause(t)
		var checks []window.Check
		for _, i := range test.checks {
			checks = append(checks, window.Check{Limiter: limiters[i], Event: "e"})
		}
		j, err := window.AllowAll(t.Context(), checks...)
		server.Resume(t)
		if fails := test.asked == 0; fails != (err != nil) || fails && !strings.Contains(err.Error(), "(checks 1 to 2 of AllowAll)") {
			t.Errorf("%+v: %v", test, err)
		}
		if j.Allowed != test.allowed || len(j.Decisions) != test.asked || (j.RetryAfter > 0) != test.usedUp {
			t.Errorf("%+v: %+v", test, j)
		}
		if used := usedOf(t, fallbacks[0], "e"); used != test.counted0 {
			t.Errorf("%+v: the Fallback counts %d", test, used)
		}
	}
}

// TestJointAsksTheDenialCache checks that a cached denial of one check costs Redis nothing, and
// that the wait is that of this check.
func TestJointAsksTheDenialCache(t *testing.T) {
	t.Parallel()
	calls := &redistest.Calls{}
	conn := window.On(redistest.NewClient(t, calls.Count))
	plain := must(window.New(conn, window.Config{Name: redistest.Key(t) + "a", Limits: parsed("9/1h"), Timeout: time.Minute}))
	cached := must(window.New(conn, window.Config{Name: redistest.Key(t) + "b", Limits: parsed("1/1h"), Timeout: time.Minute, DenialCache: 10}))
	awaitJoint(t, calls, plain, must(cached.With(parsed("1000000/1h")...)))
	var j window.JointDecision
	var err error
	var before int64
	for began := time.Now(); before == 0 || time.Since(began) > time.Second; { // the cached denial may have ended on a busy machine
		began = time.Now()
		check(t, cached.Reset(t.Context(), "e"))
		must(cached.Allow(t.Context(), "e"))
		must(cached.Allow(t.Context(), "e"))
		before = calls.Scripts.Load()
		j, err = window.AllowAll(t.Context(), window.Check{Limiter: plain, Event: "e"}, window.Check{Limiter: cached, Event: "e"})
	}
	if err != nil || j.Allowed || j.RetryAfter < 59*time.Minute || len(j.Decisions) != 2 || j.Decisions[0].Usage != nil || j.Decisions[1].Usage == nil {
		t.Errorf("%+v, %v", j, err)
	}
	if n := calls.Scripts.Load() - before; n != 0 {
		t.Errorf("%d script calls", n)
	}
}
