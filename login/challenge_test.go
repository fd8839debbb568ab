package login_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
)

// TestChallengeLetsIn uses up each budget in turn. The attempt must then be denied with Challenge
// set, and a solved challenge must let the user in.
func TestChallengeLetsIn(t *testing.T) {
	for _, denied := range []login.Budget{login.BudgetAddress, login.BudgetPair, login.BudgetAccount, login.BudgetStreak} {
		cfg := login.Config{Challenged: &login.Challenged{}}
		one := limits("1/1d")
		switch denied {
		case login.BudgetAddress:
			cfg.Address = one
		case login.BudgetPair:
			cfg.Pair = one
		case login.BudgetAccount:
			cfg.Account = one
		default:
			cfg.Streak = one
		}
		g := newGuard(t, redistest.Cluster(t), cfg)
		must(g.Begin(t.Context(), "alice", home))
		if a := must(g.Begin(t.Context(), "alice", home)); a.Allowed || a.DeniedBy != denied || !a.Challenge {
			t.Errorf("%s: %+v", denied, a)
		}
		a := must(g.BeginChallenged(t.Context(), "alice", home))
		if err := a.Succeed(t.Context()); err != nil || !a.Allowed || a.Challenge {
			t.Errorf("%s, challenged: %+v, %v", denied, a, err)
		}
		if a := must(g.Begin(t.Context(), "alice", home)); a.Allowed != (denied == login.BudgetPair) {
			t.Errorf("%s, after a login: %+v", denied, a)
		}
	}
}

// TestSolversLeaveTheReserve checks that attackers who have any number of addresses and solve any
// number of challenges leave known devices their share.
func TestSolversLeaveTheReserve(t *testing.T) {
	c := newClock()
	g := must(login.NewLocal(login.Config{Name: "login", Now: c.now, Account: limits("60/1h"), Streak: limits("90/1h"), Challenged: &login.Challenged{Account: limits("30/1h"), Streak: limits("90/1h")}}))
	allowed := 0
	for i := range 200 {
		if must(g.Begin(t.Context(), "alice", bot(i))).Allowed {
			allowed++
		}
		if must(g.BeginChallenged(t.Context(), "alice", bot(i))).Allowed {
			allowed++
		}
	}
	reserve := 0
	for i := range 30 {
		if must(g.BeginKnown(t.Context(), "alice", home, fmt.Sprint(i))).Allowed {
			reserve++
		}
	}
	if allowed != 90 || reserve != 10 {
		t.Errorf("%d by strangers, %d from known devices", allowed, reserve)
	}
}

// TestForgetChallenged checks that Forget and ForgetAddress also reset the budgets of challenged
// attempts.
func TestForgetChallenged(t *testing.T) {
	g := newGuard(t, redistest.Client(t), login.Config{Challenged: &login.Challenged{}})
	counts := func() (all []int64) {
		for _, c := range []struct {
			budget login.Budget
			event  string
		}{
			{login.BudgetChallengedAddress, "192.0.2.1"}, {login.BudgetChallengedPair, "192.0.2.1 alice"}, {login.BudgetChallengedAccount, "alice"}, {login.BudgetChallengedStreak, "alice"}, {login.BudgetTotal, "alice"},
		} {
			all = append(all, used(t, g, c.budget, c.event))
		}
		return all
	}
	must(g.BeginChallenged(t.Context(), "alice", home))
	for _, want := range [][]int64{{1, 1, 1, 1, 1}, {1, 0, 0, 0, 0}, {0, 0, 0, 0, 0}} {
		if diff := cmp.Diff(want, counts()); diff != "" {
			t.Error(diff)
		}
		if want[1] > 0 {
			if err := g.Forget(t.Context(), "alice", home); err != nil {
				t.Error(err)
			}
		} else if err := g.ForgetAddress(t.Context(), home); err != nil {
			t.Error(err)
		}
	}
}
