package login

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/slidegate/slidegate/window"
)

// BudgetState represents what one budget counts for an account, an address or a pair of them. The
// embedded Snapshot lists every bucket of every limit.
type BudgetState struct {
	Budget Budget
	Event  string // the event key of the budget: with it, Limiter(Budget) can Reset what is counted
	window.Snapshot
}

// RetryAfter returns how long it takes until the budget allows one more attempt, or 0 if it does so
// now.
func (s BudgetState) RetryAfter() (wait time.Duration) {
	for _, l := range s.Limits {
		wait = max(wait, l.RetryAfter)
	}
	return wait
}

// Inspect returns the state of every budget that Begin would ask for the account and the given
// addresses. It charges nothing, writes nothing and never asks the Fallback. Use it to find out why
// a user cannot log in.
//
// The states are in the order in which Begin asks: for each address, BudgetAddress and BudgetPair;
// then BudgetAccount, BudgetStreak and BudgetTotal. If no address is given, only the last three are
// returned. Begin allows an attempt if RetryAfter is 0 in every state listed so far. A known device
// also has its own budget: see Limiter(BudgetDevice).
//
// If Config.Challenged is set, the states of the budgets of challenged attempts follow, in the same
// order. BeginChallenged allows an attempt if RetryAfter is 0 in each of those and for BudgetTotal.
// While the alarm is on (see Alarm), Begin also denies an address that has failed twice.
//
// Inspect returns the same errors as Begin, except window.ErrUncertain.
func (g *Guard) Inspect(ctx context.Context, account string, from ...netip.Addr) ([]BudgetState, error) {
	who, err := g.subjects(account, from)
	if err != nil {
		return nil, err
	}
	onlyChallenged := func(b *budget) bool { return b.asked == beginChallenged }
	all := append(g.charges(begin.asks, who...), g.charges(onlyChallenged, who...)...)
	states := make([]BudgetState, len(all))
	for i, c := range all {
		s, err := c.limiter.Inspect(ctx, c.event)
		if err != nil {
			return nil, g.explain(fmt.Errorf("slidegate: login: cannot read what is charged to the %s: %w", c.name, err))
		}
		states[i] = BudgetState{c.name, c.event, s}
	}
	return states, nil
}
