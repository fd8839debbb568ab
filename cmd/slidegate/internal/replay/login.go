package replay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/keys"

	"golang.org/x/sync/errgroup"

	"github.com/slidegate/slidegate/cmd/slidegate/charts"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/estimator"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/login"
)

// runLogin replays the log through the login guard instead of limits.
func (c *Command) runLogin(ctx context.Context, s cli.Streams) error {
	if err := c.checkLogin(); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" { // decisions allocate many short-lived objects
		defer debug.SetGCPercent(debug.SetGCPercent(200))
	}
	var p *LoginReport
	err := c.opened(ctx, s, func(log *logs.Reader) error {
		r, err := newGuardReplay(ctx, login.Config{Name: "replay"}, maxIdle)
		if err != nil {
			return err
		}
		if err := r.run(ctx, log); err != nil {
			return err
		}
		p = r.report(c.readFrom(log))
		p.Picture = string(c.Picture)
		return nil
	})
	if err != nil {
		return err
	}
	err = p.draw()
	return errors.Join(p.print(s.Out, c.JSON), err)
}

// checkLogin returns an error if a flag is given that does not work with the login guard.
func (c *Command) checkLogin() error {
	return refuse("login", []conflict{
		{len(c.Limits) > 0, "limit", "the login guard has its own limits"},
		{len(c.Compare) > 0, "compare", "the login guard has its own limits"},
		{c.Estimator.Estimator != "", "estimator", "the login guard counts by windows"},
		{c.By.Text != "", "by", "the login guard counts by address, by account, and by both"},
		{len(c.Redis.InitAddress) > 0, "redis", "it decides in memory, with the same result as on Redis"},
	})
}

// conflict is a flag that cannot be combined with another.
type conflict struct {
	given     bool
	flag, why string
}

// refuse returns an error about the first of conflicts that was given together with flag.
func refuse(flag string, conflicts []conflict) error {
	for _, other := range conflicts {
		if other.given {
			return fmt.Errorf("--%s and --%s cannot be combined: %s; leave out one of them", flag, other.flag, other.why)
		}
	}
	return nil
}

// guardReplay passes the attempts of a log to the login guard, at the times in the log. It decides
// on one attempt at a time, because each attempt is charged to several subjects, which other
// attempts share.
type guardReplay struct {
	guard                *login.Guard
	now                  time.Time // the time of the current attempt
	budgets              []*budgetDenials
	allowed              int
	noAccount, noAddress int // attempts on which a guard cannot decide
	waits                *charts.Waits
	timeline             *charts.Timeline // its first set counts the allowed attempts, and each further set those that one budget denied
	subjects             [3]subjects
}

// budgetDenials counts the attempts that a budget denied. If several budgets would deny an attempt,
// it counts for the first one that the guard checks.
type budgetDenials struct {
	budget login.Budget
	limits flags.Limits
	denials
}

// The kinds of subjects. The report has a list for each.
const (
	byAddress = iota
	byAccount
	byPair
)

// subjects holds the tallies of all subjects of one kind under one set of limits. forget makes the
// guard forget an idle subject.
type subjects struct {
	tallies
	forget func(ctx context.Context, subject string) error
}

// newGuardReplay creates a guard. It keeps the tallies of at most the given number of idle subjects
// of each kind.
func newGuardReplay(ctx context.Context, cfg login.Config, keep int) (r *guardReplay, err error) {
	r = &guardReplay{now: time.Unix(0, 0), waits: &charts.Waits{}}
	cfg.Now = func() time.Time { return r.now }
	if r.guard, err = login.NewLocal(cfg); err != nil {
		return nil, err
	}
	of := map[login.Budget]flags.Limits{}
	// In the order in which Begin checks them.
	for _, b := range []login.Budget{login.BudgetAddress, login.BudgetPair, login.BudgetAccount, login.BudgetStreak, login.BudgetTotal} {
		if of[b], err = limitsOf(ctx, r.guard, b); err != nil {
			return nil, err
		}
		r.budgets = append(r.budgets, &budgetDenials{budget: b, limits: of[b]})
	}
	r.timeline = charts.NewTimeline(1 + len(r.budgets))
	tally := func(limits flags.Limits) tallies { return newTallies(flags.Sets{limits}, estimator.Window, keep) }
	forget := func(ctx context.Context, account string) error { return r.guard.Forget(ctx, account) }
	r.subjects = [...]subjects{
		byAddress: {tally(of[login.BudgetAddress]), r.guard.Limiter(login.BudgetAddress).Reset},
		byAccount: {tally(slices.Concat(of[login.BudgetAccount], of[login.BudgetStreak])), forget},
		byPair:    {tally(of[login.BudgetPair]), r.guard.Limiter(login.BudgetPair).Reset},
	}
	return r, nil
}

// limitsOf returns the limits of one of the guard's budgets.
func limitsOf(ctx context.Context, g *login.Guard, b login.Budget) (ls flags.Limits, err error) {
	d, err := g.Limiter(b).Peek(ctx, "anybody")
	for _, u := range d.Usage {
		ls = append(ls, u.Limit)
	}
	return ls, err
}

// run decides on all attempts of the log. It reads ahead concurrently.
func (r *guardReplay) run(ctx context.Context, log *logs.Reader) error {
	attempts := make(chan logs.Attempt, ahead)
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(attempts)
		return each(running, log, func(a logs.Attempt) { attempts <- a })
	})
	g.Go(func() error { return r.decideAll(running, attempts) })
	return interruptedAfter(ctx, g.Wait(), r.decided())
}

// decideAll decides on attempts until there are no more. After an error, it discards the remaining
// attempts, so that the sender does not block.
func (r *guardReplay) decideAll(ctx context.Context, attempts <-chan logs.Attempt) (err error) {
	for a := range attempts {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = r.decide(context.WithoutCancel(ctx), a)
		}
	}
	return err
}

// decided returns how many attempts the guard has allowed or denied.
func (r *guardReplay) decided() int { return r.allowed + r.total().denied }

// total returns the sum of all budgets' denials.
func (r *guardReplay) total() (d denials) {
	for _, b := range r.budgets {
		d.denied += b.denied
		d.succeeded += b.succeeded
	}
	return d
}

// decide passes each attempt of a line to the guard. If the guard allows an attempt that succeeded
// according to the log, decide reports the success to the guard.
func (r *guardReplay) decide(ctx context.Context, a logs.Attempt) error {
	ip, _ := netip.ParseAddr(a.Event) // the guard rejects an invalid address
	r.now = a.At
	for range a.Times {
		answer, err := r.guard.Begin(ctx, a.Account, ip)
		switch {
		case errors.Is(err, login.ErrEmptyAccount):
			r.noAccount++
			continue
		case errors.Is(err, login.ErrInvalidAddress):
			r.noAddress++
			continue
		case err == nil && answer.Allowed && a.Succeeded:
			err = answer.Succeed(ctx)
		}
		if err != nil {
			return err
		}
		r.count(a, ip, answer)
	}
	return r.sweep(ctx)
}

// count counts one of the guard's decisions for all subjects to which the attempt was charged.
func (r *guardReplay) count(a logs.Attempt, ip netip.Addr, answer *login.Attempt) {
	var all []*denials
	address := keys.ClientNetwork(ip)
	for i, subject := range [...]string{byAddress: address, byAccount: a.Account, byPair: address + " " + a.Account} {
		t := r.subjects[i].tallyOf(subject, a.At)
		t.attempts++
		all = append(all, &t.sets[0])
	}
	budget := slices.IndexFunc(r.budgets, func(b *budgetDenials) bool { return b.budget == answer.DeniedBy }) // -1 if the attempt was allowed
	outcome := make([]bool, 1+len(r.budgets))
	outcome[1+budget] = true
	r.timeline.Add(a.At, outcome)
	if answer.Allowed {
		r.allowed++
		return
	}
	r.waits.Add(answer.RetryAfter)
	for _, d := range append(all, &r.budgets[budget].denials) {
		d.add(answer.RetryAfter, a.Succeeded)
	}
}

// sweep bounds the memory used by the tallies and the guard.
func (r *guardReplay) sweep(ctx context.Context) error {
	for i := range r.subjects {
		if err := r.subjects[i].sweep(ctx, r.subjects[i].forget); err != nil {
			return err
		}
	}
	return nil
}
