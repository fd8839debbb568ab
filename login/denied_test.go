package login_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

// TestOnDenied checks that OnDenied is called for each budget that denies an attempt, and that
// Denial.Limiter names the budget.
func TestOnDenied(t *testing.T) {
	var seen []string
	g := must(login.NewLocal(login.Config{
		Name: "login", Pair: limits("2/1h"), Account: limits("3/1h"), Challenged: &login.Challenged{}, Now: newClock().now,
		OnDenied: func(_ context.Context, d window.Denial) {
			seen = append(seen, fmt.Sprint(d.Limiter, " ", d.Event, " ", d.Limit.Label()))
		},
	}))
	for range 3 {
		must(g.Begin(t.Context(), "alice", home))
	}
	for i := range 2 {
		must(g.Begin(t.Context(), "alice", bot(i)))
	}
	want := []string{"login.pair 192.0.2.1 alice 2/1h", "login.account alice 3/1h"}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
