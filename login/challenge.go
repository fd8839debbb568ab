package login

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/slidegate/slidegate/internal/subnet"
	"github.com/slidegate/slidegate/window"
)

// Challenged limits attempts whose clients solved a challenge: a captcha, a proof of work, or a
// code by mail. They are counted apart from other attempts, so users get in while attackers have
// used up the usual budgets. Limits that are nil have the defaults given here. The details are in
// https://github.com/slidegate/slidegate/blob/main/docs/login.md#challenges.
type Challenged struct {
	// Address limits the challenged failures of one address, on all accounts together. Default:
	// 20/1m, 50/1h, 100/1d, as Config.Address.
	Address []window.Limit

	// Pair limits the challenged failures of one address on one account since it last logged in
	// there. Default: 5/1m, 10/1h.
	Pair []window.Limit

	// Account limits the challenged failures of all addresses on one account. Default: 5/10m,
	// 10/1h, 20/1d. Within the Per of each limit of Total, it may allow at most nine tenths of that
	// limit together with Config.Account.
	Account []window.Limit

	// Streak limits the challenged failures on one account while nobody logs in. Default: 20/30d.
	// With the 60 of Config.Streak and the 20 of one known device, that is at most 100 in a row.
	Streak []window.Limit

	// Site is the level of failures over the whole service that switches on the alarm: by default
	// 1000/1h. Max is at most 10^7. During an alarm, unknown devices whose address has failed twice
	// need a challenge. See
	// https://github.com/slidegate/slidegate/blob/main/docs/login.md#attacks-on-the-whole-site.
	Site window.Limit

	// Switched is called when the alarm goes on or off in this process. Attempts wait for it, so
	// return quickly. It must not use the guard.
	Switched func(Alarm) `json:"-"`
}

var (
	challengedPairLimits    = []window.Limit{window.PerMinute(5), window.PerHour(10)}
	challengedAccountLimits = []window.Limit{{Max: 5, Per: 10 * time.Minute}, window.PerHour(10), window.PerDay(20)}
	challengedStreakLimits  = []window.Limit{{Max: 20, Per: month}}
)

// budgets returns the budgets of challenged attempts with their limits, or none without challenges.
func (c *Challenged) budgets() []budgetLimits {
	if c == nil {
		return nil
	}
	return []budgetLimits{
		{BudgetChallengedAddress, orDefault(c.Address, addressLimits)},
		{BudgetChallengedPair, orDefault(c.Pair, challengedPairLimits)},
		{BudgetChallengedAccount, c.account()},
		{BudgetChallengedStreak, orDefault(c.Streak, challengedStreakLimits)},
	}
}

// account returns the limits of Account, or the default.
func (c *Challenged) account() []window.Limit { return orDefault(c.Account, challengedAccountLimits) }

var errNoChallenges = errors.New("slidegate: login guard without challenges; set Config.Challenged, such as to &login.Challenged{}")

// BeginChallenged charges an attempt whose client has just solved a challenge, as the application
// has verified. Call it after Begin or BeginKnown denied with Attempt.Challenge. It charges
// separate budgets, and the total of the account, so it can be allowed where the others deny.
// Accept each solution once, for one account.
//
// Its success resets the streak of challenged attempts, but not the other one. Otherwise each login
// during an attack would give the attacker new guesses without a challenge. It returns an error
// without Config.Challenged. In everything else it behaves like Begin.
func (g *Guard) BeginChallenged(ctx context.Context, account string, ip netip.Addr) (*Attempt, error) {
	if err := g.check(account, ip); err != nil {
		return nil, err
	}
	if !g.challenges() {
		return nil, errNoChallenges
	}
	a, err := g.begin(ctx, challengedCharges(account, ip), append(g.withChallenged([]charge{pairCharge(account, ip)}), charge{BudgetChallengedStreak, account})...)
	g.alarm.count(ctx, a)
	return a, err
}

// challenges reports whether the service has challenges.
func (g *Guard) challenges() bool { return g.alarm != nil }

// challengedCharges returns what a challenged attempt is charged to.
func challengedCharges(account string, ip netip.Addr) []charge {
	return []charge{
		{BudgetChallengedAddress, subnet.Client(ip)},
		pairCharge(account, ip).challenged(),
		{BudgetChallengedAccount, account},
		{BudgetChallengedStreak, account},
		{BudgetTotal, account},
	}
}

// challenged returns the same charge, to the budget of challenged attempts.
func (c charge) challenged() charge { return charge{"challenged-" + c.budget, c.event} }

// withChallenged returns the charges, and those to the corresponding budgets of challenged attempts
// where the guard has them.
func (g *Guard) withChallenged(all []charge) []charge {
	if !g.challenges() {
		return all
	}
	for _, c := range all {
		if twin := c.challenged(); g.limiters[twin.budget] != nil {
			all = append(all, twin)
		}
	}
	return all
}

// wouldAdmit reports whether a challenged attempt would be allowed now. It charges nothing, and
// takes one round trip.
func (g *Guard) wouldAdmit(ctx context.Context, account string, ip netip.Addr) bool {
	ctx, cancel := g.detach(ctx)
	defer cancel()
	charges := challengedCharges(account, ip)
	return g.concurrently(len(charges), func(i int) error {
		d, err := g.limiters[charges[i].budget].Peek(ctx, charges[i].event)
		if err == nil && !d.Allowed {
			err = errDenied
		}
		return err
	}) == nil
}

var errDenied = errors.New("denied")
