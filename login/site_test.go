package login_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

// failOn fails one login on each of many accounts, each from a different address.
func failOn(t *testing.T, g *login.Guard, accounts int) {
	t.Helper()
	for i := range accounts {
		if a := must(g.Begin(t.Context(), fmt.Sprint("account ", i), bot(i))); !a.Allowed {
			t.Fatalf("%d: %+v", i, a)
		}
	}
}

// raiseAlarm fails often enough to switch the alarm on.
func raiseAlarm(t *testing.T, g *login.Guard, c *clock) {
	t.Helper()
	failOn(t, g, int(g.Alarm().Limit.Max))
	c.pass(time.Second)
	if err := must(g.Begin(t.Context(), "somebody", bot(60_000))).Succeed(t.Context()); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the alarm is on", func() bool { return g.Alarm().On })
}

// TestSiteLevel compares the level and the alarm with a model in real numbers, in which each
// failure counts e^(-time/Per).
func TestSiteLevel(t *testing.T) {
	for seed := range redistest.UnlessShort[uint64](10, 2) {
		c, rng := newClock(), rand.New(rand.NewPCG(seed, 0))
		g := must(login.NewLocal(login.Config{Name: "login", Now: c.now, Challenged: &login.Challenged{Site: window.PerHour(100)}}))
		level, on, switched := 0.0, false, 0
		for i := range 2000 {
			pause := time.Second + time.Duration(rng.Int64N(10_000))*time.Millisecond
			if i/200%2 == 1 {
				pause *= 30
			}
			c.pass(pause)
			level = min(100.5, level*math.Exp(-pause.Hours())+1)
			must(g.Begin(t.Context(), fmt.Sprint(i), bot(i)))
			a := g.Alarm()
			sure := math.Abs(level-100) > 1 && math.Abs(level-50) > 1
			if want := level >= 100 || on && level >= 50; math.Abs(float64(a.Level)-level) > 1 || sure && a.On != want {
				t.Fatalf("seed %d, attempt %d: got %+v, want %.2f, on: %v", seed, i, a, level, want)
			}
			if a.On != on {
				on, switched = a.On, switched+1
			}
		}
		if switched < 2 {
			t.Error("the alarm never switched on and off, so this test checks too little")
		}
	}
}

// TestSiteUnderLoad makes many attempts at once. It checks that the level counts failures, but
// neither successes nor attempts that other budgets denied.
func TestSiteUnderLoad(t *testing.T) {
	c := newClock()
	g := must(login.NewLocal(login.Config{Name: "login", Now: c.now, Challenged: &login.Challenged{}}))
	var group sync.WaitGroup
	for i := range 32 {
		group.Go(func() {
			for n := range 60 {
				a := must(g.Begin(t.Context(), fmt.Sprint(i, "-", n), bot(100*i+n)))
				switch n % 3 {
				case 0:
					must(0, a.Succeed(t.Context()))
				case 1:
					must(0, a.Cancel(t.Context()))
				}
				must(g.BeginKnown(t.Context(), fmt.Sprint(i, "-", n), bot(i), "laptop"))
				must(g.Begin(t.Context(), "alice", bot(i)))
			}
		})
	}
	group.Wait()
	c.pass(time.Second)
	must(g.BeginChallenged(t.Context(), "bob", home))
	if got, want := g.Alarm().Level, int64(32*20+10+1); got != want {
		t.Errorf("the level is %d, want %d", got, want)
	}
}

// TestSiteUnderWay checks that attempts under way count until they succeed, and that their success
// does not hide later failures once the level has decayed.
func TestSiteUnderWay(t *testing.T) {
	for slow, levels := range map[int][3]int64{800: {800, 800, 315}, 3000: {1000, 1000, 300}} {
		c := newClock()
		g := must(login.NewLocal(login.Config{Name: "login", Now: c.now, Challenged: &login.Challenged{}}))
		levelIs := func(want int64) {
			c.pass(time.Second)
			must(0, must(g.Begin(t.Context(), "somebody", bot(60_000))).Cancel(t.Context()))
			if got := g.Alarm().Level; got < want-2 || got > want+2 {
				t.Errorf("%d under way: the level is %d, want about %d", slow, got, want)
			}
		}
		slowLogins := make([]*login.Attempt, slow)
		for i := range slowLogins {
			slowLogins[i] = must(g.Begin(t.Context(), fmt.Sprint("slow ", i), bot(i)))
		}
		levelIs(levels[0])
		for _, a := range slowLogins {
			must(0, a.Succeed(t.Context()))
		}
		failOn(t, g, 300)
		levelIs(levels[1]) // the level already counts this many
		for range 3 * 60 {
			c.pass(time.Minute)
			must(0, must(g.Begin(t.Context(), "somebody", bot(60_000))).Cancel(t.Context()))
		}
		failOn(t, g, 300)
		levelIs(levels[2])
	}
}

// TestSiteLasts checks that attempts that the alarm denies keep it on, unless they all come from a
// single address.
func TestSiteLasts(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes an attempt each second for six hours")
	}
	for addresses, lasts := range map[int]bool{1: false, 40: true} {
		c := newClock()
		g := must(login.NewLocal(login.Config{Name: "login", Now: c.now, Challenged: &login.Challenged{Site: window.PerHour(40)}}))
		raiseAlarm(t, g, c)
		failOn(t, g, addresses)
		for i := range 6 * 3600 {
			c.pass(time.Second)
			if a := must(g.Begin(t.Context(), fmt.Sprint("account ", i%addresses), bot(i%addresses))); g.Alarm().On && a.DeniedBy != login.BudgetSite {
				t.Fatalf("%+v", a)
			}
		}
		if g.Alarm().On != lasts {
			t.Errorf("%d addresses: %+v", addresses, g.Alarm())
		}
	}
}

// TestSiteDoesNotFlap sends failures at random times, for one day at each of several rates near
// those at which the alarm switches. The alarm may switch at most once a day.
func TestSiteDoesNotFlap(t *testing.T) {
	for seed := range redistest.UnlessShort[uint64](2, 1) {
		c, rng := newClock(), rand.New(rand.NewPCG(seed, 0))
		var switches []login.Alarm
		g := must(login.NewLocal(login.Config{Name: "login", Now: c.now, Challenged: &login.Challenged{
			Site: window.PerHour(200), Switched: func(a login.Alarm) { switches = append(switches, a) },
		}}))
		number := 0
		for day, rate := range []float64{0.1, 0.5, 0.8, 1, 1.2, 1, 0.8, 0.5, 0.4, 0.1, 0.5, 0.8} {
			before := len(switches)
			for end := c.now().Add(24 * time.Hour); c.now().Before(end); number++ {
				c.pass(time.Second + time.Duration(rng.ExpFloat64()*(3600/(200*rate)-1)*float64(time.Second)))
				must(g.Begin(t.Context(), fmt.Sprint(number), bot(number)))
			}
			if n := len(switches) - before; n > 1 {
				t.Errorf("seed %d, day %d, %g of the limit: switched %d times: %+v", seed, day, rate, n, switches)
			}
		}
		if len(switches) != 2 || !switches[0].On || switches[1].On || switches[1].Level >= switches[0].Level {
			t.Errorf("seed %d: %+v", seed, switches)
		}
	}
}

// TestSiteIsShared checks that two guards share the level, and that each guard sends only one call
// a second for this, on a single key.
func TestSiteIsShared(t *testing.T) {
	server, c := redistest.Start(t), newClock()
	var guards []*login.Guard
	for range 2 {
		guards = append(guards, must(login.New(window.On(server.Client(t)), login.Config{
			Name: "login", Secret: secret, Now: c.now, Timeout: time.Minute, Challenged: &login.Challenged{Site: window.PerHour(150)},
		})))
	}
	must(guards[0].Begin(t.Context(), "somebody", home))
	redistest.Eventually(t, "the level is read", func() bool { return guards[0].Alarm().Level == 1 })
	const seconds, attempts = 30, 4
	server.Do(t.Context(), "CONFIG", "RESETSTAT")
	number, want := 0, 0
	for range seconds {
		c.pass(time.Second)
		for _, g := range guards {
			for range attempts {
				number++
				if a := must(g.Begin(t.Context(), fmt.Sprint(number), bot(number))); !a.Allowed {
					t.Fatalf("%+v", a)
				}
			}
			want += 5*attempts + 1
			redistest.Eventually(t, fmt.Sprint(want, " calls"), func() bool { return calls(t, server) >= want })
		}
	}
	if n := calls(t, server); n != want {
		t.Errorf("%d calls, want %d", n, want)
	}
	if keys := must(server.Do(t.Context(), "KEYS", "login.site:*").AsStrSlice()); len(keys) != 1 {
		t.Errorf("keys are %q", keys)
	}
	for _, g := range guards { // each guard saw 120 failures
		redistest.Eventually(t, "the alarm is on", func() bool { return g.Alarm().On })
	}
}

// calls returns how many script calls the server has executed.
func calls(t *testing.T, s *redistest.Server) int {
	t.Helper()
	_, stat, _ := strings.Cut(must(s.Do(t.Context(), "INFO", "commandstats").ToString()), "cmdstat_evalsha:calls=")
	number, _, _ := strings.Cut(stat, ",")
	return must(strconv.Atoi(number))
}

// TestSiteInAnOutage checks that during an outage of Redis, the alarm stays on for as long as it would
// without new failures.
func TestSiteInAnOutage(t *testing.T) {
	t.Parallel()
	server, c := redistest.Start(t), newClock()
	cfg := login.Config{Name: "login", Secret: secret, Now: c.now, Timeout: time.Minute, Challenged: &login.Challenged{Site: window.PerHour(5)}}
	cfg.Fallback = must(login.NewLocal(login.Config{Name: "fallback", Now: c.now, Challenged: &login.Challenged{}}))
	g := must(login.New(window.On(server.Client(t)), cfg))
	raiseAlarm(t, g, c)
	refuseScripts(t, server)
	for range 2 {
		must(g.Begin(t.Context(), "alice", bot(100)))
	}
	if a := must(g.Begin(t.Context(), "alice", bot(100))); a.DeniedBy != login.BudgetSite || !a.Degraded || !a.Challenge {
		t.Errorf("%+v", a)
	}
	c.pass(35 * time.Minute)
	if !g.Alarm().On {
		t.Errorf("35 minutes later: %+v", g.Alarm())
	}
	c.pass(10 * time.Minute)
	if a := must(g.Begin(t.Context(), "alice", bot(100))); !a.Allowed || g.Alarm().On {
		t.Errorf("45 minutes later: %+v, %+v", a, g.Alarm())
	}
}

// TestNoSite checks that a guard without challenges has no alarm.
func TestNoSite(t *testing.T) {
	for _, g := range []*login.Guard{nil, {}, must(login.NewLocal(login.Config{Name: "login"}))} {
		if a := g.Alarm(); a != (login.Alarm{}) {
			t.Errorf("%+v", a)
		}
	}
}
