package audit_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/audit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// wrong lists deliberately faulty limiters, with the findings that an audit must report.
var wrong = []struct {
	name  string
	make  func(window.Limit, clock) audit.Func
	kinds []audit.Kind
	like  string
}{
	{"fixed window by the clock", fixedOfClock, []audit.Kind{audit.KindExcess}, "a fixed window by the clock"},
	{"fixed window from the first attempt", fixedOfFirst, []audit.Kind{audit.KindExcess}, "a fixed window that the first attempt opens"},
	{"two-window estimate", twoWindows, []audit.Kind{audit.KindExcess, audit.KindNeedless}, "an estimate"},
	{"GCRA with burst", gcra, []audit.Kind{audit.KindExcess}, "a token bucket"},
	{"two instances", instances, []audit.Kind{audit.KindExcess}, "twice the limit"},
	{"none", unlimited, []audit.Kind{audit.KindExcess}, "no limit"},
	{"forgets 2 % too early", forgetsEarly, []audit.Kind{audit.KindExcess}, ""},
	{"checks first, counts later", checksFirst, []audit.Kind{audit.KindRace}, ""},
	{"half the limit", stricter, []audit.Kind{audit.KindNeedless}, ""},
	{"forgets a tenth too late", forgetsLate, []audit.Kind{audit.KindNeedless}, ""},
	{"charges denials", chargesDenials, []audit.Kind{audit.KindDeniedCount}, ""},
	{"waits a bucket too short", wrongWaits(-50 * time.Millisecond), []audit.Kind{audit.KindWaitTooShort}, ""},
	{"waits a bucket too long", wrongWaits(50 * time.Millisecond), []audit.Kind{audit.KindWaitTooLong}, ""},
}

// TestWrong checks, with fake time, that an audit finds each fault and nothing else.
func TestWrong(t *testing.T) {
	all := []string{"20/1s", "5/3s", "5/1h", "100/1d"}
	for _, claim := range redistest.UnlessShort(all, all[:1]) {
		for _, w := range wrong {
			t.Run(claim+" "+w.name, func(t *testing.T) {
				c := audit.NewClock()
				l := parse(t, claim)
				check(t, run(t, claim, c, w.make(l, c.Now)), w.kinds, w.like)
			})
		}
	}
}

func check(t *testing.T, r *audit.Report, want []audit.Kind, like string) {
	t.Helper()
	if got := kinds(r); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
		for _, f := range r.Findings {
			t.Logf("%+v", f)
		}
	}
	if like == "" && r.Like != "" || !strings.HasPrefix(r.Like, like) {
		t.Errorf("it behaves like %q, want %q", r.Like, like)
	}
}

// TestIncrex checks what docs/algorithm.md states about INCREX: it allows up to 2 × Max - 1 within
// an interval of length Per, so the limit holds only if Max is 1.
func TestIncrex(t *testing.T) {
	excess, like := []audit.Kind{audit.KindExcess}, "a fixed window that the first attempt opens"
	for _, tt := range []struct {
		claim string
		kinds []audit.Kind
		like  string
	}{{"1/5s", nil, ""}, {"2/5s", excess, like}, {"20/1s", excess, like}, {"100/1h", excess, like}} {
		c, l := audit.NewClock(), parse(t, tt.claim)
		r := run(t, tt.claim, c, increx(l, c.Now))
		check(t, r, tt.kinds, tt.like)
		most := r.Claims[0].Most
		t.Logf("%s: %d in a span of %v, %d of %d denials without need, %d waits", tt.claim, most, l.Per, r.Needless, r.Denied, r.Waits.Reported)
		if int64(most) != 2*l.Max-1 || r.Needless > 0 || r.Waits.Reported > 0 {
			t.Errorf("%s: %+v", tt.claim, r.Claims[0])
		}
	}
}

// TestErrors checks that Run rejects what it cannot audit, and that the error states why.
func TestErrors(t *testing.T) {
	attempt := unlimited(window.Limit{}, nil)
	for _, tt := range []struct {
		cfg  audit.Config
		want string
	}{
		{audit.Config{Attempt: attempt}, "an audit needs Claims and Attempt"},
		{audit.Config{Claims: []window.Limit{{Max: 1 << 62, Per: time.Second}}}, "an audit needs Claims and Attempt"},
		{audit.Config{Claims: []window.Limit{{Max: 1 << 62, Per: time.Second}}, Attempt: attempt}, "claims: limit"},
		{audit.Config{Claims: []window.Limit{{Max: 1, Per: 1 << 62}}, Attempt: attempt}, "claims: limit"},
		{audit.Config{Claims: []window.Limit{{Max: 1, Per: time.Second, Resolution: -1}}, Attempt: attempt}, "claims: limit"},
		{audit.Config{Claims: []window.Limit{{Max: 1, Per: time.Second}, {Max: 2, Per: time.Second}}, Attempt: attempt}, "two claims have a Per of 1s; keep the tighter one"},
		{audit.Config{Claims: []window.Limit{{Max: 1e6, Per: time.Second}}, Attempt: attempt}, "no attack under the claims fits into 1m and 10000 attempts; allow more, or claim a smaller limit"},
		{audit.Config{Claims: []window.Limit{{Max: 1e6, Per: time.Second}}, Attempt: attempt, Clock: audit.NewClock()}, "no attack under the claims fits into 10000 attempts; allow more, or claim a smaller limit"},
	} {
		if _, err := audit.Run(t.Context(), tt.cfg); err == nil || !strings.HasPrefix(err.Error(), "slidegate: "+tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, want %q", tt.cfg.Claims, err, tt.want)
		}
	}
}

// TestOneByOne checks the finding for limits that use up each other's budgets, whatever their
// order.
func TestOneByOne(t *testing.T) {
	for _, claims := range []string{"1/5s,5/1m", "5/1m,1/5s", "3/1s,10/10s", "10/10s,3/1s"} {
		t.Run(claims, func(t *testing.T) {
			c := audit.NewClock()
			limits, err := audit.ParseClaims(claims)
			if err != nil {
				t.Fatal(err)
			}
			check(t, run(t, claims, c, oneByOne(limits, c.Now)), []audit.Kind{audit.KindSharedBudget}, "")
		})
	}
}

// TestStricterOfTwo checks that an audit finds a limit that is stricter than claimed, although each
// of its denials follows denials by another limit.
func TestStricterOfTwo(t *testing.T) {
	for claims, stricter := range map[string]string{"5/1s,20/10s": "5/1s,19/10s", "20/1s,100/10s": "20/1s,99/10s"} {
		synctest.Test(t, func(t *testing.T) {
			check(t, run(t, claims, nil, local(t, stricter, nil, false)), []audit.Kind{audit.KindNeedless}, "")
		})
	}
}

// TestSlow checks that an excess counts as a race only if sequential attempts were fast enough to
// rule out another cause.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempt := instances(parse(t, "20/1s"), time.Now)
		slow := func(ctx context.Context) (bool, time.Duration, error) {
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // in a bubble
			return attempt(ctx)
		}
		check(t, run(t, "20/1s", nil, slow), []audit.Kind{audit.KindExcess}, "no limit")
	})
}

// TestRight checks, with fake time, that an audit finds nothing wrong with a correct limiter.
func TestRight(t *testing.T) {
	all := []string{"1/5s", "1/1ms", "20/1s", "5/1h", "100/1s", "1/5s,5/1m", "61/1d", "1000/1h", "1/5s,5/1h,20/1d"}
	for _, claims := range redistest.UnlessShort(all, all[:7]) {
		t.Run(claims, func(t *testing.T) {
			c := audit.NewClock()
			check(t, run(t, claims, c, local(t, claims, c, false)), nil, "")
		})
	}
}

// TestCountDenied checks that the audit of a limiter with CountDenied reports that denials prolong
// the lockout.
func TestCountDenied(t *testing.T) {
	for _, claims := range []string{"20/1s", "5/1h"} {
		c := audit.NewClock()
		check(t, run(t, claims, c, local(t, claims, c, true)), []audit.Kind{audit.KindDeniedCount}, "")
	}
}
