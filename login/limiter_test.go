package login_test

import (
	"net/netip"
	"testing"

	"github.com/slidegate/slidegate/login"
)

// TestLimiter checks that the limiter of a budget shows and resets what was charged for an attempt.
func TestLimiter(t *testing.T) {
	g, err := login.NewLocal(login.Config{Name: "login"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Begin(t.Context(), "alice", netip.MustParseAddr("2001:db8:1:2::3")); err != nil {
		t.Fatal(err)
	}
	for budget, event := range map[login.Budget]string{
		login.BudgetAddress: "2001:db8:1:2::/64", login.BudgetPair: "2001:db8:1:2::/64 alice", login.BudgetAccount: "alice", login.BudgetStreak: "alice",
	} {
		l := g.Limiter(budget)
		before, err := l.Inspect(t.Context(), event)
		if err != nil || before.Limits[0].Used != 1 {
			t.Errorf("%s: %+v, %v", budget, before, err)
		}
		if err := l.Reset(t.Context(), event); err != nil {
			t.Error(err)
		}
		if after, err := l.Inspect(t.Context(), event); err != nil || after.Limits[0].Used != 0 {
			t.Errorf("%s, reset: %+v, %v", budget, after, err)
		}
	}
	if g.Limiter("none") != nil {
		t.Error("Limiter returned a limiter for an unknown budget")
	}
}
