package audit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/bench/audit"
	"github.com/slidegate/slidegate/window"
)

func parse(t *testing.T, limit string) window.Limit {
	t.Helper()
	l, err := window.ParseLimit(limit)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// check checks, with fake time, which faults an audit finds.
func check(t *testing.T, limit string, limiter func(window.Limit) audit.Func, want ...audit.Kind) (r audit.Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := parse(t, limit)
		var err error
		if r, err = audit.Run(t.Context(), l, limiter(l)); err != nil || !slices.Equal(r.Found, want) {
			t.Errorf("%s: found %v, want %v; error %v", limit, r.Found, want, err)
		}
	})
	return r
}

// TestWrong checks that an audit finds each fault of deliberately faulty limiters, and nothing else.
func TestWrong(t *testing.T) {
	for _, wrong := range []struct {
		name  string
		make  func(window.Limit) audit.Func
		kinds []audit.Kind
	}{
		{"fixed window by the clock", fixedOfClock, []audit.Kind{audit.KindExcess}},
		{"fixed window from the first attempt", fixedOfFirst, []audit.Kind{audit.KindExcess}},
		{"two-window estimate", twoWindows, []audit.Kind{audit.KindExcess, audit.KindNeedless}},
		{"GCRA with burst", gcra, []audit.Kind{audit.KindExcess}},
		{"none", unlimited, []audit.Kind{audit.KindExcess}},
		{"forgets 2 % too early", forgetsEarly, []audit.Kind{audit.KindExcess}},
		{"checks first, counts later", checksFirst, []audit.Kind{audit.KindRace}},
		{"half the limit", stricter, []audit.Kind{audit.KindNeedless}},
		{"forgets a tenth too late", forgetsLate, []audit.Kind{audit.KindNeedless}},
		{"charges denials", chargesDenials, []audit.Kind{audit.KindDeniedCount}},
		{"waits a bucket too short", wrongWaits(-50 * time.Millisecond), []audit.Kind{audit.KindWaitTooShort}},
		{"waits a bucket too long", wrongWaits(50 * time.Millisecond), []audit.Kind{audit.KindWaitTooLong}},
	} {
		t.Run(wrong.name, func(t *testing.T) {
			check(t, "20/1s", wrong.make, wrong.kinds...)
			check(t, "5/3s", wrong.make, wrong.kinds...)
		})
	}
}

// TestIncrex checks what docs/algorithm.md states about INCREX: it allows up to 2 × Max - 1 within
// an interval of length Per, so the limit holds only if Max is 1.
func TestIncrex(t *testing.T) {
	check(t, "1/5s", increx)
	for _, limit := range []string{"2/5s", "20/1s", "100/1h"} {
		r := check(t, limit, increx, audit.KindExcess)
		t.Logf("%s: at most %d, %d of %d denials without need, %d waits", limit, r.Most, r.Needless, r.Denied, r.Waits)
		if want := 2*parse(t, limit).Max - 1; int64(r.Most) != want || r.Needless > 0 || r.Waits > 0 {
			t.Errorf("%s: %+v", limit, r)
		}
	}
}

// TestRight checks that an audit finds nothing wrong with a correct limiter.
func TestRight(t *testing.T) {
	for _, limit := range []string{"1/5s", "1/1ms", "20/1s", "5/1h", "100/1s", "61/1d"} {
		if r := check(t, limit, local(false)); r.Denied == 0 || r.Waits != r.Denied {
			t.Errorf("%s: %+v", limit, r)
		}
	}
}

// TestCountDenied checks the audit of a correct limiter that counts denied attempts.
func TestCountDenied(t *testing.T) {
	for _, limit := range []string{"20/1s", "5/1h"} {
		check(t, limit, local(true), audit.KindDeniedCount)
	}
}

// local returns a constructor of correct limiters: those of package window, in memory.
func local(countDenied bool) func(window.Limit) audit.Func {
	return func(limit window.Limit) audit.Func {
		l, err := window.NewLocal(window.Config{Name: "audit", Limits: []window.Limit{limit}, CountDenied: countDenied})
		return func(ctx context.Context) (bool, time.Duration, error) {
			if err != nil {
				return false, 0, err
			}
			d, err := l.Allow(ctx, "somebody")
			return d.Allowed, d.RetryAfter, err
		}
	}
}

// TestSlow checks that an excess counts as a race only if sequential attempts were fast enough to
// rule out another cause.
func TestSlow(t *testing.T) {
	check(t, "20/1s", func(l window.Limit) audit.Func {
		attempt := unlimited(l)
		return func(ctx context.Context) (bool, time.Duration, error) {
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // in a bubble
			return attempt(ctx)
		}
	}, audit.KindExcess)
}

// TestErrors checks that there is no report on a limiter that keeps failing, nor of an audit that
// is interrupted.
func TestErrors(t *testing.T) {
	limit, down := window.Limit{Max: 5, Per: time.Second}, errors.New("down")
	_, err := audit.Run(t.Context(), limit, func(context.Context) (bool, time.Duration, error) { return false, 0, down })
	if !errors.Is(err, down) || !strings.Contains(err.Error(), "5 attempts in a row") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := audit.Run(ctx, limit, unlimited(limit)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestUnknown checks that attempts without an answer, which may have been counted, prove nothing.
func TestUnknown(t *testing.T) {
	check(t, "20/1s", func(l window.Limit) audit.Func {
		attempt, calls := sliding(l), atomic.Int64{}
		return func(ctx context.Context) (bool, time.Duration, error) {
			allowed, wait, err := attempt(ctx)
			if calls.Add(1)%3 == 0 {
				err = errors.New("the reply was lost")
			}
			return allowed, wait, err
		}
	})
}
