package login_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
	"github.com/slidegate/slidegate/windowtest"
)

// TestInspect checks that the states name the budgets in the order in which Begin asks them, and
// what is charged to them, and that Inspect itself charges nothing.
func TestInspect(t *testing.T) {
	g := newGuard(t, redistest.Cluster(t), login.Config{})
	ip := netip.MustParseAddr("2001:db8:1:2::3")
	must(g.Begin(t.Context(), "alice", ip))
	type charged struct {
		Budget login.Budget
		Event  string
		Used   int64
	}
	account := []charged{{login.BudgetAccount, "alice", 1}, {login.BudgetStreak, "alice", 1}, {login.BudgetTotal, "alice", 1}}
	network := []charged{{login.BudgetAddress, "2001:db8:1:2::/64", 1}, {login.BudgetPair, "2001:db8:1:2::/64 alice", 1}}
	elsewhere := []charged{{login.BudgetAddress, "192.0.2.1", 0}, {login.BudgetPair, "192.0.2.1 alice", 0}}
	for _, tt := range []struct {
		from []netip.Addr
		want []charged
	}{
		{nil, account},
		{[]netip.Addr{ip}, append(network, account...)},
		{[]netip.Addr{ip, home}, append(append(network, elsewhere...), account...)},
	} {
		var got []charged
		for range 2 {
			got = nil
			for _, s := range must(g.Inspect(t.Context(), "alice", tt.from...)) {
				got = append(got, charged{s.Budget, s.Event, s.Limits[0].Used})
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("from %v (-want +got):\n%s", tt.from, diff)
		}
	}
}

// TestInspectChallenged checks that the states of challenged budgets follow if the guard has
// challenges.
func TestInspectChallenged(t *testing.T) {
	g := newGuard(t, redistest.Client(t), login.Config{Challenged: &login.Challenged{}})
	must(g.Begin(t.Context(), "alice", home))
	for range 2 {
		must(g.BeginChallenged(t.Context(), "alice", home))
	}
	var got []string
	for _, s := range must(g.Inspect(t.Context(), "alice", home)) {
		got = append(got, fmt.Sprintf("%s of %s: %d", s.Budget, s.Event, s.Limits[0].Used))
	}
	want := []string{
		"address of 192.0.2.1: 1", "pair of 192.0.2.1 alice: 1", "account of alice: 1", "streak of alice: 1", "total of alice: 3",
		"challenged-address of 192.0.2.1: 2", "challenged-pair of 192.0.2.1 alice: 2", "challenged-account of alice: 2", "challenged-streak of alice: 2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestInspectAsBegin checks that Begin allows an attempt after the longest RetryAfter of the
// states, but not a millisecond earlier.
func TestInspectAsBegin(t *testing.T) {
	c := newClock()
	g := must(login.NewLocal(login.Config{Name: "login", Now: c.now}))
	for attempt := range 40 {
		var wait time.Duration
		for _, s := range must(g.Inspect(t.Context(), "alice", home)) {
			wait = max(wait, s.RetryAfter())
		}
		if wait > 0 {
			c.pass(wait - time.Millisecond)
			if a := must(g.Begin(t.Context(), "alice", home)); a.Allowed {
				t.Fatalf("attempt %d is allowed before %v are over", attempt, wait)
			}
			c.pass(time.Millisecond)
		}
		if a := must(g.Begin(t.Context(), "alice", home)); !a.Allowed {
			t.Fatalf("attempt %d is denied by %s although %v are over", attempt, a.DeniedBy, wait)
		}
	}
}

// TestInspectErrors checks that Inspect rejects the accounts and addresses that Begin rejects, and
// returns window.ErrOutage if Redis does not answer.
func TestInspectErrors(t *testing.T) {
	g := must(login.New(windowtest.Down(), login.Config{Name: "login", Secret: secret, Fallback: must(login.NewLocal(login.Config{Name: "login"}))}))
	if _, err := g.Inspect(t.Context(), ""); !errors.Is(err, login.ErrEmptyAccount) {
		t.Errorf("no account: %v", err)
	}
	if _, err := g.Inspect(t.Context(), "alice", netip.Addr{}); !errors.Is(err, login.ErrInvalidAddress) {
		t.Errorf("no address: %v", err)
	}
	if _, err := new(login.Guard).Inspect(t.Context(), "alice"); err == nil {
		t.Error("a zero Guard returned no error")
	}
	if s, err := g.Inspect(t.Context(), "alice", home); !errors.Is(err, window.ErrOutage) || s != nil {
		t.Errorf("Redis is gone: %v, %v", s, err)
	}
}
