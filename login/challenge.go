package login

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/slidegate/slidegate/internal/subnet"
	"github.com/slidegate/slidegate/window"
)

// Challenged is what attempts may fail whose clients solved a challenge: a captcha, a proof of work, a code by mail. It is counted apart from what others
// fail, so that users get in while the budgets of others are used up. What is nil is as the defaults are.
type Challenged struct {
	// Address is what one address may fail with challenges: by default as Config.Address, 20/1m, 50/1h and 100/1d.
	Address []window.Limit

	// Pair is what one address may fail with challenges on one account since it last logged into it: by default 5/1m and 10/1h.
	Pair []window.Limit

	// Account is what all addresses together may fail with challenges on one account: by default 5/10m, 10/1h and 20/1d. In the time of each limit of
	// Total it must allow at most nine tenths of what that does, together with Config.Account.
	Account []window.Limit

	// Streak is what may fail with challenges on one account with no login of anybody in between: by default 20/30d. With the 60 of Config.Streak and the
	// 20 of one known device it is at most 100 in a row.
	Streak []window.Limit

	// Site is the level of failures over the whole service at which the alarm goes on: by default 1000/1h. It goes off below half of that. Choose about ten
	// times what fails in the busiest hour of a quiet week: Guard.Alarm shows the level. While the alarm is on, unknown devices whose address has failed twice
	// within the longest limit of Config.Address have to solve a challenge. Max is at most 10^7.
	Site window.Limit

	// Switched is called when the alarm goes on or off in this process. Keep it quick: attempts wait for it. It must not use the guard.
	Switched func(Alarm) `json:"-"`
}

var (
	challengedPairLimits    = []window.Limit{window.PerMinute(5), window.PerHour(10)}
	challengedAccountLimits = []window.Limit{{Max: 5, Per: 10 * time.Minute}, window.PerHour(10), window.PerDay(20)}
	challengedStreakLimits  = []window.Limit{{Max: 20, Per: month}}
)

// budgets returns those of challenged attempts, or none without challenges.
func (c *Challenged) budgets() []limited {
	if c == nil {
		return nil
	}
	return []limited{
		{ChallengedAddress, or(c.Address, addressLimits)},
		{ChallengedPair, or(c.Pair, challengedPairLimits)},
		{ChallengedAccount, c.account()},
		{ChallengedStreak, or(c.Streak, challengedStreakLimits)},
	}
}

func (c *Challenged) account() []window.Limit { return or(c.Account, challengedAccountLimits) }

var errNoChallenges = errors.New("slidegate: login guard without challenges; set Config.Challenged, such as to &login.Challenged{}")

// BeginChallenged is Begin for a client that has just solved a challenge, as the application has verified. The attempt is charged to budgets of its own and
// to the total of the account, so it can be allowed where Begin and BeginKnown deny: Attempt.Challenge says so. Its success clears the streak of challenged
// attempts only: else each login during an attack gives the attacker new guesses without a challenge. Let a solution serve for one attempt only, on one
// account. Without Config.Challenged it is an error.
func (g *Guard) BeginChallenged(ctx context.Context, account string, ip netip.Addr) (*Attempt, error) {
	if err := g.check(account, ip); err != nil {
		return nil, err
	}
	if !g.challenges() {
		return nil, errNoChallenges
	}
	a, err := g.begin(ctx, ofChallenged(account, ip), append(g.withChallenged([]charge{pairOf(account, ip)}), charge{ChallengedStreak, account})...)
	g.site.count(ctx, a)
	return a, err
}

// challenges reports whether the service has challenges.
func (g *Guard) challenges() bool { return g.site != nil }

// ofChallenged returns what a challenged attempt is charged to.
func ofChallenged(account string, ip netip.Addr) []charge {
	return []charge{
		{ChallengedAddress, subnet.Client(ip)},
		pairOf(account, ip).challenged(),
		{ChallengedAccount, account},
		{ChallengedStreak, account},
		{Total, account},
	}
}

// challenged returns the charge to the budget of challenged attempts that corresponds to one of others.
func (c charge) challenged() charge { return charge{"challenged-" + c.budget, c.event} }

// withChallenged adds to charges those to the budgets of challenged attempts that correspond to them, if there are such.
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

// wouldAdmit reports whether a challenged attempt would be allowed now. It charges nothing, and takes one round trip.
func (g *Guard) wouldAdmit(ctx context.Context, account string, ip netip.Addr) bool {
	ctx, cancel := g.begun(ctx)
	defer cancel()
	charges := ofChallenged(account, ip)
	return g.sideBySide(len(charges), func(i int) error {
		d, err := g.limiters[charges[i].budget].Peek(ctx, charges[i].event)
		if err == nil && !d.Allowed {
			err = errDenied
		}
		return err
	}) == nil
}

var errDenied = errors.New("denied")
