package login

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/slidegate/slidegate/window"
)

// BudgetState represents what one budget counts for an account, an address or both. The embedded
// Snapshot names the event key and lists every bucket of every limit.
type BudgetState struct {
	Budget Budget
	window.Snapshot
}

// RetryAfter returns how long until the budget allows one more attempt, or 0 if it does now.
func (s BudgetState) RetryAfter() (wait time.Duration) {
	for _, l := range s.Limits {
		wait = max(wait, l.RetryAfter)
	}
	return wait
}

// Inspect returns the state of every budget that Begin would ask about an account and the given
// addresses. It charges nothing, writes nothing and never asks the Fallback. Use it to find out why
// a user cannot log in.
//
// The states are in the order in which Begin asks: for each address, BudgetAddress and BudgetPair;
// then BudgetAccount, BudgetStreak and BudgetTotal. Without an address, there are only these three.
// Begin allows an attempt if RetryAfter is 0 for all of them. A known device also has its own
// budget, which Limiter(BudgetDevice) inspects.
//
// With Config.Challenged, the states of challenged attempts follow, in the same order.
// BeginChallenged allows an attempt if RetryAfter is 0 for these and for BudgetTotal. While the
// alarm is on (see Alarm), Begin also denies an address that has failed twice.
//
// The errors are those of Begin, but never window.ErrUncertain.
func (g *Guard) Inspect(ctx context.Context, account string, from ...netip.Addr) ([]BudgetState, error) {
	if err := g.checkAccount(account); err != nil {
		return nil, err
	}
	var all []charge
	for _, ip := range from {
		if err := checkAddress(ip); err != nil {
			return nil, err
		}
		all = append(all, addressCharges(account, ip)...)
	}
	all = g.withChallenged(append(all, accountCharges(account)...))
	return g.inspect(ctx, all)
}

// inspect returns the state of the budget of each charge.
func (g *Guard) inspect(ctx context.Context, all []charge) ([]BudgetState, error) {
	states := make([]BudgetState, len(all))
	for i, c := range all {
		s, err := g.limiters[c.budget].Inspect(ctx, c.event)
		if err != nil {
			return nil, fmt.Errorf("slidegate: login: cannot read what is charged to the %s: %w", c.budget, err)
		}
		states[i] = BudgetState{c.budget, s}
	}
	return states, nil
}
