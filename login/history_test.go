package login_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

// ledger is the model that the guard is compared with. It records when attempts were charged, for
// each limit of each subject. It shares no code with the guard.
type ledger struct {
	limits   map[login.Budget][]window.Limit
	charged  map[slot][]time.Time
	alarmOn  bool // an address may fail at most twice under each of its limits
	together bool // budgets after a denial are asked too
}

// slot is one limit of a subject.
type slot struct {
	subject
	per time.Duration
}

// subject is an event key of a budget.
type subject struct {
	budget login.Budget
	of     string
}

// verdict is what the ledger expects of an attempt.
type verdict struct {
	allowed   bool
	wait      time.Duration
	denied    login.Budget
	left      int64
	next      time.Duration // the wait after a failure
	challenge bool
}

// begin charges the attempt to all subjects. If any of them denies, it charges nothing, and returns
// which denies first.
func (x *ledger) begin(now time.Time, subjects []subject) verdict {
	v := x.peek(now, subjects)
	if !v.allowed {
		return v
	}
	for _, s := range subjects {
		for _, l := range x.limits[s.budget] {
			p := slot{s, l.Per}
			x.charged[p] = append(x.charged[p], now)
			most := l.Max
			if x.alarmOn && s.budget == login.BudgetAddress {
				most = min(2, most)
			}
			if n := int64(len(x.charged[p])); n >= most {
				v.next = max(v.next, x.charged[p][n-most].Add(l.Per).Sub(now))
			}
		}
	}
	return v
}

// peek returns what begin would return, but charges nothing.
func (x *ledger) peek(now time.Time, subjects []subject) verdict {
	v := verdict{allowed: true, left: 1 << 60}
	for _, s := range subjects {
		for _, l := range x.limits[s.budget] {
			p := slot{s, l.Per}
			x.charged[p] = slices.DeleteFunc(x.charged[p], func(at time.Time) bool { return now.Sub(at) >= l.Per })
			n := int64(len(x.charged[p]))
			most, denied := l.Max, s.budget
			if x.alarmOn && s.budget == login.BudgetAddress {
				most, denied = min(2, most), login.BudgetSite
			}
			v.left = min(v.left, most-n-1)
			if n >= most {
				v.allowed, v.denied = false, cmp.Or(v.denied, denied)
				v.wait = max(v.wait, x.charged[p][n-most].Add(l.Per).Sub(now))
			}
		}
		if !v.allowed && !x.together {
			break
		}
	}
	if !v.allowed {
		return verdict{wait: v.wait, denied: v.denied}
	}
	return v
}

// end gives back the charges of an attempt that began at began. If a success has cleared them and
// other attempts were charged after that, it gives back the first of the later charges: see
// Attempt.Cancel.
func (x *ledger) end(now, began time.Time, charged []subject) {
	for _, s := range charged {
		for _, l := range x.limits[s.budget] {
			p := slot{s, l.Per}
			if i := slices.IndexFunc(x.charged[p], func(at time.Time) bool { return !at.Before(began) }); i >= 0 && now.Sub(began) < l.Per {
				x.charged[p] = slices.Delete(x.charged[p], i, i+1)
			}
		}
	}
}

// clear forgets all charges to the given subjects.
func (x *ledger) clear(all []subject) {
	for _, s := range all {
		for _, l := range x.limits[s.budget] {
			delete(x.charged, slot{s, l.Per})
		}
	}
}

// pending is an attempt that has not ended.
type pending struct {
	*login.Attempt
	began        time.Time
	charged, own []subject // success clears own
}

// TestHistories plays random histories, and compares each answer with the ledger. Attempts come
// from a few addresses and devices, and are on a few accounts, with and without a solved challenge.
// They end immediately, later, in another order, or never. In most histories, the alarm is always
// on or always off. In memory, where the guard always knows the current level, some histories
// switch the alarm.
func TestHistories(t *testing.T) {
	c := newClock()
	cfg := login.Config{
		Secret: secret, Now: c.now,
		Address: limits("4/1m", "15/10m"), Pair: limits("2/1m", "5/10m"), Account: limits("8/1m", "16/30m"), Streak: limits("8/1d"), Device: limits("2/1m", "5/1d"),
		Total: limits("90/1h", "29/10m"), Timeout: time.Minute,
		Challenged: &login.Challenged{Address: limits("3/1m", "12/10m"), Pair: limits("2/1m", "4/10m"), Account: limits("4/1m", "10/1h"), Streak: limits("6/1d")},
	}
	for name, guard := range guards(t, cfg) {
		t.Run(name, func(t *testing.T) {
			seen, seeds := map[string]int{}, redistest.UnlessShort[uint64](5, 3)
			if name == "memory" && !testing.Short() {
				seeds = 155
			}
			for seed := range seeds {
				cfg.Challenged.Site = siteLimits[seed%2]
				if name == "memory" {
					cfg.Challenged.Site = siteLimits[seed%3]
				}
				g := guard(fmt.Sprint(seed))
				must(g.Begin(t.Context(), "somebody", bot(0)))
				redistest.Eventually(t, "the alarm knows of a failure", func() bool { return g.Alarm().Level == 1 })
				play(t, c, g, &ledger{limits: map[login.Budget][]window.Limit{
					login.BudgetAddress: cfg.Address, login.BudgetPair: cfg.Pair, login.BudgetAccount: cfg.Account, login.BudgetStreak: cfg.Streak, login.BudgetDevice: cfg.Device, login.BudgetTotal: cfg.Total,
					login.BudgetChallengedAddress: cfg.Challenged.Address, login.BudgetChallengedPair: cfg.Challenged.Pair, login.BudgetChallengedAccount: cfg.Challenged.Account, login.BudgetChallengedStreak: cfg.Challenged.Streak,
				}, charged: map[slot][]time.Time{}, together: name == "memory"}, rand.New(rand.NewPCG(seed, 0)), seen)
			}
			want := []string{"allowed", "succeeded", "cancelled", "address", "pair", "account", "streak", "device", "total", "challenge", "challenged-address", "challenged-pair", "challenged-account", "challenged-streak", "site"}
			if name == "memory" {
				want = append(want, "switched")
			}
			for _, what := range want {
				if seen[what] < redistest.UnlessShort(10, 1) {
					t.Errorf("the histories are too uniform: %v", seen)
				}
			}
		})
	}
}

// siteLimits are limits under which the alarm stays off, switches on after one failure, or switches
// several times in a history.
var siteLimits = []window.Limit{window.PerHour(1_000_000), {Max: 1, Per: 365 * 24 * time.Hour}, {Max: 8, Per: time.Minute}}

// play runs one history of 600 attempts, and counts in seen what happened.
func play(t *testing.T, c *clock, g *login.Guard, x *ledger, rng *rand.Rand, seen map[string]int) {
	t.Helper()
	var unfinished []pending
	for number := range 600 {
		c.pass(time.Duration(rng.ExpFloat64() * float64(3*time.Second)))
		if on := g.Alarm().On; on != x.alarmOn {
			x.alarmOn = on
			seen["switched"]++
		}
		if a := attempt(t, c, g, x, rng, number); a.Allowed {
			seen["allowed"]++
			unfinished = append(unfinished, a)
		} else {
			seen[string(a.DeniedBy)]++
			if a.Challenge {
				seen["challenge"]++
			}
		}
		for len(unfinished) > 0 && rng.IntN(3) > 0 {
			i := rng.IntN(len(unfinished))
			end(t, c.now(), unfinished[i], x, rng, seen)
			unfinished = slices.Delete(unfinished, i, i+1)
		}
	}
}

// attempt begins one attempt, and compares the answer with the ledger.
func attempt(t *testing.T, c *clock, g *login.Guard, x *ledger, rng *rand.Rand, number int) pending {
	t.Helper()
	account, ip, device := fmt.Sprint("account ", rng.IntN(4)), netip.AddrFrom4([4]byte{192, 0, 2, byte(rng.IntN(3))}), fmt.Sprint("device ", rng.IntN(2))
	pair, streak, owned := subject{login.BudgetPair, ip.String() + account}, subject{login.BudgetStreak, account}, subject{login.BudgetDevice, device + account}
	solvedPair, solvedStreak := subject{login.BudgetChallengedPair, ip.String() + account}, subject{login.BudgetChallengedStreak, account}
	charged, own := []subject{{login.BudgetAddress, ip.String()}, pair, {login.BudgetAccount, account}, streak, {login.BudgetTotal, account}}, []subject{pair, streak, solvedPair, solvedStreak}
	solved := []subject{{login.BudgetChallengedAddress, ip.String()}, solvedPair, {login.BudgetChallengedAccount, account}, solvedStreak, {login.BudgetTotal, account}}
	var want verdict
	var a *login.Attempt
	switch rng.IntN(4) {
	case 0:
		charged, own = solved, []subject{pair, solvedPair, solvedStreak}
		want = x.begin(c.now(), charged)
		a = must(g.BeginChallenged(t.Context(), account, ip))
	case 1:
		want = x.begin(c.now(), charged)
		want.challenge = !want.allowed && x.peek(c.now(), solved).allowed
		a = must(g.Begin(t.Context(), account, ip))
	default:
		of := []subject{owned, {login.BudgetTotal, account}}
		if want = x.begin(c.now(), of); want.allowed {
			charged, own = of, []subject{owned, streak, solvedStreak}
		} else if want.denied == login.BudgetDevice {
			if other := x.begin(c.now(), charged); other.allowed || other.wait < want.wait {
				want, own = other, append(own, owned)
			}
		}
		want.challenge = !want.allowed && x.peek(c.now(), solved).allowed
		a = must(g.BeginKnown(t.Context(), account, ip, device))
	}
	if got := (verdict{a.Allowed, a.RetryAfter, a.DeniedBy, a.Remaining, a.NextWait, a.Challenge}); got != want || a.Degraded {
		t.Fatalf("attempt %d on %s from %s by %s: got %+v, want %+v", number, account, ip, device, got, want)
	}
	return pending{a, c.now(), charged, own}
}

// end ends an attempt with Succeed or Cancel, or leaves it charged.
func end(t *testing.T, now time.Time, a pending, x *ledger, rng *rand.Rand, seen map[string]int) {
	t.Helper()
	var err error
	switch dice := rng.IntN(8); {
	case dice < 1:
		x.end(now, a.began, a.charged)
		x.clear(a.own)
		err = a.Succeed(t.Context())
		seen["succeeded"]++
	case dice < 3:
		x.end(now, a.began, a.charged)
		err = a.Cancel(t.Context())
		seen["cancelled"]++
	}
	if err != nil {
		t.Fatal(err)
	}
}
