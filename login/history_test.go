package login_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) { redistest.MainSideBySide(m) }

var (
	noon   = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	secret = []byte("sixteen bytes, or more")
)

// clock is a clock that stands still until the test moves it.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ms.Store(noon.UnixMilli())
	return c
}

func (c *clock) now() time.Time       { return time.UnixMilli(c.ms.Load()) }
func (c *clock) pass(d time.Duration) { c.ms.Add(d.Milliseconds()) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func limits(texts ...string) (all []window.Limit) {
	for _, text := range texts {
		all = append(all, must(window.ParseLimit(text)))
	}
	return all
}

// ledger is what the guard is judged by: for each limit of each subject, when attempts were charged. It shares no code with the guard.
type ledger struct {
	limits  map[login.Budget][]window.Limit
	charged map[page][]time.Time
	alarmed bool // an address may fail at most twice in each of its limits
}

type page struct {
	subject
	per time.Duration
}

type subject struct {
	budget login.Budget
	of     string
}

// verdict is what the ledger says of an attempt.
type verdict struct {
	allowed   bool
	wait      time.Duration
	denied    login.Budget
	left      int64
	next      time.Duration // after a failure
	challenge bool
}

// begin charges the attempt to all subjects, or says which denies first.
func (x *ledger) begin(now time.Time, subjects []subject) verdict {
	v := x.judge(now, subjects)
	if !v.allowed {
		return v
	}
	for _, s := range subjects {
		for _, l := range x.limits[s.budget] {
			p := page{s, l.Per}
			x.charged[p] = append(x.charged[p], now)
			most := l.Max
			if x.alarmed && s.budget == login.Address {
				most = min(2, most)
			}
			if n := int64(len(x.charged[p])); n >= most {
				v.next = max(v.next, x.charged[p][n-most].Add(l.Per).Sub(now))
			}
		}
	}
	return v
}

// judge says what begin would.
func (x *ledger) judge(now time.Time, subjects []subject) verdict {
	v := verdict{allowed: true, left: 1 << 60}
	for _, s := range subjects {
		for _, l := range x.limits[s.budget] {
			p := page{s, l.Per}
			x.charged[p] = slices.DeleteFunc(x.charged[p], func(at time.Time) bool { return now.Sub(at) >= l.Per })
			n := int64(len(x.charged[p]))
			most, denied := l.Max, s.budget
			if x.alarmed && s.budget == login.Address {
				most, denied = min(2, most), login.Site
			}
			v.left = min(v.left, most-n-1)
			if n >= most {
				v.allowed, v.denied = false, denied
				v.wait = max(v.wait, x.charged[p][n-most].Add(l.Per).Sub(now))
			}
		}
		if !v.allowed {
			return verdict{wait: v.wait, denied: v.denied}
		}
	}
	return v
}

// end takes back the charges of an attempt that began at a time. Where a success has cleared them, and others were charged since, it takes
// the first of those: see Cancel.
func (x *ledger) end(now, began time.Time, charged []subject) {
	for _, s := range charged {
		for _, l := range x.limits[s.budget] {
			p := page{s, l.Per}
			if i := slices.IndexFunc(x.charged[p], func(at time.Time) bool { return !at.Before(began) }); i >= 0 && now.Sub(began) < l.Per {
				x.charged[p] = slices.Delete(x.charged[p], i, i+1)
			}
		}
	}
}

func (x *ledger) clear(all []subject) {
	for _, s := range all {
		for _, l := range x.limits[s.budget] {
			delete(x.charged, page{s, l.Per})
		}
	}
}

// underWay is an attempt that has not ended.
type underWay struct {
	*login.Attempt
	began        time.Time
	charged, own []subject // own: what a success clears
}

// TestHistories plays random histories of attempts from few addresses and devices on few accounts, with and without a solved challenge, which end at once,
// later, in another order or never, and compares each answer with the ledger. The alarm is off or on in all of a history; in memory, where the guard knows
// at once, there are some in which it goes on and off.
func TestHistories(t *testing.T) {
	c := newClock()
	cfg := login.Config{
		Secret: secret, Now: c.now,
		Address: limits("4/1m", "15/10m"), Pair: limits("2/1m", "5/10m"), Account: limits("8/1m", "16/30m"), Streak: limits("8/1d"), Device: limits("2/1m", "5/1d"),
		Total: limits("90/1h", "29/10m"), Timeout: 10 * time.Second,
		Challenged: &login.Challenged{Address: limits("3/1m", "12/10m"), Pair: limits("2/1m", "4/10m"), Account: limits("4/1m", "10/1h"), Streak: limits("6/1d")},
	}
	for name, guard := range guards(t, cfg) {
		t.Run(name, func(t *testing.T) {
			seen, seeds := map[string]int{}, redistest.UnlessShort[uint64](10, 3)
			if name == "memory" && !testing.Short() {
				seeds = 155
			}
			for seed := range seeds {
				cfg.Challenged.Site = sites[seed%2]
				if name == "memory" {
					cfg.Challenged.Site = sites[seed%3]
				}
				g := guard(fmt.Sprint(seed))
				must(g.Begin(t.Context(), "somebody", bot(0)))
				eventually(t, "the alarm knows of a failure", func() bool { return g.Alarm().Level == 1 })
				play(t, c, g, &ledger{limits: map[login.Budget][]window.Limit{
					login.Address: cfg.Address, login.Pair: cfg.Pair, login.Account: cfg.Account, login.Streak: cfg.Streak, login.Device: cfg.Device, login.Total: cfg.Total,
					login.ChallengedAddress: cfg.Challenged.Address, login.ChallengedPair: cfg.Challenged.Pair, login.ChallengedAccount: cfg.Challenged.Account, login.ChallengedStreak: cfg.Challenged.Streak,
				}, charged: map[page][]time.Time{}}, rand.New(rand.NewPCG(seed, 0)), seen)
			}
			want := []string{"allowed", "succeeded", "cancelled", "address", "pair", "account", "streak", "device", "total", "challenge", "challenged-address", "challenged-pair", "challenged-account", "challenged-streak", "site"}
			if name == "memory" {
				want = append(want, "switched")
			}
			for _, what := range want {
				if seen[what] < redistest.UnlessShort(10, 1) {
					t.Errorf("a poor test: %v", seen)
				}
			}
		})
	}
}

// sites are limits under which the alarm is off, is on after one failure, or goes on and off in the course of a history.
var sites = []window.Limit{window.PerHour(1_000_000), {Max: 1, Per: 365 * 24 * time.Hour}, {Max: 8, Per: time.Minute}}

// guards are makers of guards of the configuration: in memory, on a server and on a cluster.
func guards(t *testing.T, cfg login.Config) map[string]func(name string) *login.Guard {
	t.Helper()
	client, cluster := redistest.Client(t), redistest.Cluster(t)
	prefix := redistest.Key(t)
	named := func(name string) login.Config {
		cfg := cfg
		cfg.Name = prefix + name
		return cfg
	}
	return map[string]func(name string) *login.Guard{
		"memory":  func(name string) *login.Guard { return must(login.NewLocal(named(name))) },
		"server":  func(name string) *login.Guard { return must(login.New(client, named(name))) },
		"cluster": func(name string) *login.Guard { return must(login.New(cluster, named(name+"-c"))) },
	}
}

func play(t *testing.T, c *clock, g *login.Guard, x *ledger, rng *rand.Rand, seen map[string]int) {
	t.Helper()
	var open []underWay
	for number := range 600 {
		c.pass(time.Duration(rng.ExpFloat64() * float64(3*time.Second)))
		if on := g.Alarm().On; on != x.alarmed {
			x.alarmed = on
			seen["switched"]++
		}
		if a := attempt(t, c, g, x, rng, number); a.Allowed {
			seen["allowed"]++
			open = append(open, a)
		} else {
			seen[string(a.Denied)]++
			if a.Challenge {
				seen["challenge"]++
			}
		}
		for len(open) > 0 && rng.IntN(3) > 0 {
			i := rng.IntN(len(open))
			end(t, c.now(), open[i], x, rng, seen)
			open = slices.Delete(open, i, i+1)
		}
	}
}

// attempt begins one attempt, and compares the answer.
func attempt(t *testing.T, c *clock, g *login.Guard, x *ledger, rng *rand.Rand, number int) underWay {
	t.Helper()
	account, ip, device := fmt.Sprint("account ", rng.IntN(4)), netip.AddrFrom4([4]byte{192, 0, 2, byte(rng.IntN(3))}), fmt.Sprint("device ", rng.IntN(2))
	pair, streak, owned := subject{login.Pair, ip.String() + account}, subject{login.Streak, account}, subject{login.Device, device + account}
	solvedPair, solvedStreak := subject{login.ChallengedPair, ip.String() + account}, subject{login.ChallengedStreak, account}
	charged, own := []subject{{login.Address, ip.String()}, pair, {login.Account, account}, streak, {login.Total, account}}, []subject{pair, streak, solvedPair, solvedStreak}
	solved := []subject{{login.ChallengedAddress, ip.String()}, solvedPair, {login.ChallengedAccount, account}, solvedStreak, {login.Total, account}}
	var want verdict
	var a *login.Attempt
	switch rng.IntN(4) {
	case 0:
		charged, own = solved, []subject{pair, solvedPair, solvedStreak}
		want = x.begin(c.now(), charged)
		a = must(g.BeginChallenged(t.Context(), account, ip))
	case 1:
		want = x.begin(c.now(), charged)
		want.challenge = !want.allowed && x.judge(c.now(), solved).allowed
		a = must(g.Begin(t.Context(), account, ip))
	default:
		of := []subject{owned, {login.Total, account}}
		if want = x.begin(c.now(), of); want.allowed {
			charged, own = of, []subject{owned, streak, solvedStreak}
		} else if want.denied == login.Device {
			if other := x.begin(c.now(), charged); other.allowed || other.wait < want.wait {
				want, own = other, append(own, owned)
			}
		}
		want.challenge = !want.allowed && x.judge(c.now(), solved).allowed
		a = must(g.BeginKnown(t.Context(), account, ip, device))
	}
	if got := (verdict{a.Allowed, a.RetryAfter, a.Denied, a.Left, a.Next, a.Challenge}); got != want || a.Degraded {
		t.Fatalf("attempt %d on %s from %s by %s: got %+v, want %+v", number, account, ip, device, got, want)
	}
	return underWay{a, c.now(), charged, own}
}

func end(t *testing.T, now time.Time, a underWay, x *ledger, rng *rand.Rand, seen map[string]int) {
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
