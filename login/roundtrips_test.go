package login_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/lua"
	"github.com/slidegate/slidegate/window"
)

// gate holds back the replies of Redis until the client has sent all script calls of a round trip.
// A client that waits for a reply before it has sent all of them waits forever.
type gate struct {
	mu    sync.Mutex
	sends sync.Cond
	trips []int // for each round trip, how many calls have been sent when it ends
	sent  int
}

// newGate returns a gate that holds nothing back yet.
func newGate() *gate {
	g := &gate{}
	g.sends.L = &g.mu
	return g
}

// expect starts counting calls. Each argument is the number of calls in one round trip.
func (g *gate) expect(calls ...int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trips, g.sent = []int{0}, 0
	for i, n := range calls {
		g.trips = append(g.trips, g.trips[i]+n)
	}
}

// open stops holding back replies, and starts counting calls.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trips, g.sent = nil, 0
}

// calls returns how many calls were sent since expect.
func (g *gate) calls() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sent
}

// gated is a connection that goes through a gate.
type gated struct {
	net.Conn
	gate *gate
}

func (c gated) Write(b []byte) (int, error) {
	c.gate.mu.Lock()
	c.gate.sent += bytes.Count(b, []byte("EVALSHA"))
	c.gate.mu.Unlock()
	c.gate.sends.Broadcast()
	return c.Conn.Write(b)
}

func (c gated) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	for c.gate.trips != nil && !slices.Contains(c.gate.trips, c.gate.sent) {
		c.gate.sends.Wait()
	}
	return n, err
}

// gatedGuard returns a guard whose client connects through a gate.
func gatedGuard(t *testing.T, cfg login.Config) (*gate, *login.Guard) {
	t.Helper()
	gate := newGate()
	server := redistest.Start(t)
	for _, verb := range []string{"allow", "joint", "refund", "undo"} { // otherwise NOSCRIPT would wait at the gate
		load := server.Client(t).B().ScriptLoad().Script(lua.WindowFor(verb).Source).Build()
		must("", server.Client(t).Do(t.Context(), load).Error())
	}
	client := server.NewClient(t, func(o *rueidis.ClientOption) {
		o.AlwaysPipelining = true // otherwise the second of two callers on a new connection waits for the first
		o.PipelineMultiplex = -1  // one connection: the handshake of another would wait at the gate
		o.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			c, err := d.DialContext(ctx, "tcp", address)
			return gated{c, gate}, err
		}
	})
	cfg.Name, cfg.Secret, cfg.Timeout = "login", secret, time.Minute
	g := must(login.New(window.On(client), cfg))
	must(g.Begin(t.Context(), "somebody", home)) // connects
	if cfg.Challenged != nil {
		redistest.Eventually(t, "the alarm knows of a failure", func() bool { return g.Alarm().Level == 1 })
	}
	return gate, g
}

// TestRoundTrips counts the calls that each method sends before it waits for replies, both when the
// budgets are asked one by one and when one script call asks all of them.
func TestRoundTrips(t *testing.T) {
	var gate *gate
	var g *login.Guard
	var last *login.Attempt
	begin := func(from int) func() (*login.Attempt, error) {
		return func() (*login.Attempt, error) { return g.Begin(t.Context(), "alice", bot(from)) }
	}
	known := func() (*login.Attempt, error) { return g.BeginKnown(t.Context(), "alice", bot(7), "laptop") }
	challenged := func(from int) func() (*login.Attempt, error) {
		return func() (*login.Attempt, error) { return g.BeginChallenged(t.Context(), "alice", bot(from)) }
	}
	succeed := func() (*login.Attempt, error) { return last, last.Succeed(t.Context()) }
	forget := func(from ...netip.Addr) func() (*login.Attempt, error) {
		return func() (*login.Attempt, error) { return &login.Attempt{}, g.Forget(t.Context(), "alice", from...) }
	}
	type step struct {
		name   string
		do     func() (*login.Attempt, error)
		trips  []int // the number of calls in each round trip
		denied login.Budget
	}
	allowed := []int{1, 1, 1, 1, 1} // asks one budget after another
	play := func(steps []step) {
		for _, s := range steps {
			<-time.After(time.Millisecond) // so that no two budgets become free in the same ms, since either of them could then deny
			gate.expect(s.trips...)
			var err error
			if last, err = s.do(); err != nil {
				t.Fatal(err)
			}
			if want := sum(s.trips); gate.calls() != want || last.DeniedBy != s.denied {
				t.Errorf("%s: %d calls, want %d; denied by %q", s.name, gate.calls(), want, last.DeniedBy)
			}
		}
	}
	cfg := login.Config{Address: limits("4/1h"), Account: limits("3/1h"), Streak: limits("2/1h"), Device: limits("2/1h"), Now: time.Now}
	gate, g = gatedGuard(t, cfg)
	play([]step{
		{"Begin", begin(1), allowed, ""},
		{"Cancel", func() (*login.Attempt, error) { return last, last.Cancel(t.Context()) }, []int{5}, ""},
		{"Begin", begin(0), allowed, ""},
		{"Begin", begin(1), allowed, ""},
		{"denied by the streak", begin(2), []int{1, 1, 1, 1, 3}, login.BudgetStreak},
		{"BeginKnown", known, []int{1, 1}, ""},
		{"Succeed", succeed, []int{3}, ""},
		{"Begin", begin(1), allowed, ""},
		{"denied by the account", begin(2), []int{1, 1, 1, 2}, login.BudgetAccount},
		{"Forget", forget(bot(1)), []int{4}, ""},
		{"Begin", begin(1), allowed, ""},
		{"Begin", begin(1), allowed, ""},
		{"denied by the address", begin(1), []int{1}, login.BudgetAddress},
		{"Forget", forget(), []int{3}, ""},
		{"BeginKnown", known, []int{1, 1}, ""},
		{"BeginKnown", known, []int{1, 1}, ""},
		{"BeginKnown, used up", known, []int{1, 1, 1, 1, 1, 1}, ""},
		{"Succeed", succeed, []int{6}, ""},
	})
	gate, g = gatedGuard(t, login.Config{Account: limits("1/2h"), Total: limits("2/1h"), Now: time.Now})
	play([]step{
		{"Begin", begin(0), allowed, ""},
		{"BeginKnown", known, []int{1, 1}, ""},
		{"BeginKnown, denied by the total", known, []int{1, 1, 1}, login.BudgetTotal},
	})
	cfg.Challenged = &login.Challenged{Address: limits("1/1h"), Account: limits("1/1h")}
	cfg.Now = newClock().now // stands still, so that the alarm's level is read only once
	gate, g = gatedGuard(t, cfg)
	play([]step{
		{"Begin", begin(0), allowed, ""},
		{"Begin", begin(1), allowed, ""},
		{"denied by the streak", begin(2), []int{1, 1, 1, 1, 3, 5}, login.BudgetStreak},
		{"BeginChallenged", challenged(2), allowed, ""},
		{"Succeed", succeed, []int{6}, ""},
		{"BeginChallenged", challenged(2), allowed, ""},
		{"BeginChallenged, denied by the account", challenged(3), []int{1, 1, 1, 2}, login.BudgetChallengedAccount},
		{"BeginChallenged, denied by the address", challenged(2), []int{1}, login.BudgetChallengedAddress},
		{"Forget", forget(bot(1)), []int{7}, ""},
	})
	cfg.Challenged = &login.Challenged{Site: window.PerHour(1)} // the first failure switches the alarm on
	cfg.Streak = nil
	gate, g = gatedGuard(t, cfg)
	play([]step{
		{"Begin, alarmed", begin(1), allowed, ""},
		{"Succeed", succeed, []int{7}, ""},
		{"Begin, alarmed", begin(1), allowed, ""},
		{"Begin, alarmed", begin(1), allowed, ""},
		{"denied by the alarm", begin(1), []int{1, 5}, login.BudgetSite},
		{"Begin, alarmed", begin(2), allowed, ""},
		{"denied by the account, alarmed", begin(3), []int{1, 1, 1, 2, 5}, login.BudgetAccount},
	})
	cfg = login.Config{Address: limits("4/1h"), Account: limits("3/1h"), Streak: limits("2/1h"), Device: limits("2/1h"), Challenged: &login.Challenged{Account: limits("1/1h")}}
	gate, g = jointGuard(t, cfg)
	play([]step{
		{"Begin, jointly", begin(1), []int{1}, ""},
		{"Succeed, jointly", succeed, []int{1}, ""},
		{"Begin, jointly", begin(1), []int{1}, ""},
		{"Cancel, jointly", func() (*login.Attempt, error) { return last, last.Cancel(t.Context()) }, []int{1}, ""},
		{"Begin, jointly", begin(1), []int{1}, ""},
		{"Begin, jointly", begin(1), []int{1}, ""},
		{"denied by the streak, jointly", begin(2), []int{1, 5}, login.BudgetStreak},
		{"BeginChallenged, jointly", challenged(2), []int{1}, ""},
		{"denied by the account, jointly", challenged(3), []int{1}, login.BudgetChallengedAccount},
		{"BeginKnown, jointly", known, []int{1}, ""},
		{"BeginKnown, jointly", known, []int{1}, ""},
		{"BeginKnown, used up, jointly", known, []int{1, 1, 5}, login.BudgetStreak},
	})
}

// TestCallsOnACluster counts the calls on a cluster, where one script call asks the budgets of the
// account.
func TestCallsOnACluster(t *testing.T) {
	calls, o := &redistest.Calls{}, redistest.ClusterOptions(t)
	calls.Count(&o)
	client := must(rueidis.NewClient(o))
	t.Cleanup(client.Close)
	g := must(login.New(window.On(client), login.Config{Name: redistest.Key(t), Secret: secret, Timeout: time.Minute, Account: limits("2/1h")}))
	for i, s := range []struct {
		calls  int64
		denied login.Budget
	}{{3, ""}, {3, ""}, {3 + 2, login.BudgetAccount}} {
		before := calls.Scripts.Load()
		a := must(g.Begin(t.Context(), "alice", bot(i)))
		if n := calls.Scripts.Load() - before; n != s.calls || a.DeniedBy != s.denied {
			t.Errorf("%d: %d calls, want %d; denied by %q", i, n, s.calls, a.DeniedBy)
		}
	}
}

// jointGuard returns a gated guard that begins an attempt with one script call, which asks all
// budgets, and ends it with another.
func jointGuard(t *testing.T, cfg login.Config) (*gate, *login.Guard) {
	t.Helper()
	gate, g := gatedGuard(t, cfg)
	n := 0
	for _, do := range []func(account string) (*login.Attempt, error){
		func(account string) (*login.Attempt, error) { return g.Begin(t.Context(), account, bot(100+n)) },
		func(account string) (*login.Attempt, error) {
			return g.BeginKnown(t.Context(), account, bot(100+n), "d")
		},
		func(account string) (*login.Attempt, error) {
			return g.BeginChallenged(t.Context(), account, bot(100+n))
		},
	} {
		redistest.Eventually(t, "one call asks all budgets, and one gives back", func() bool {
			n++
			gate.open()
			must("", must(do(fmt.Sprint("account ", n))).Succeed(t.Context()))
			return gate.calls() == 2
		})
	}
	return gate, g
}

// sum returns the sum of all numbers.
func sum(all []int) (n int) {
	for _, one := range all {
		n += one
	}
	return n
}
