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

	"golang.org/x/sync/errgroup"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/estimator"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/picture"
	"github.com/slidegate/slidegate/internal/subnet"
	"github.com/slidegate/slidegate/login"
)

// runLogin is Run with the login guard in place of limits.
func (c *Command) runLogin(ctx context.Context, s cli.Streams) error {
	if err := c.checkLogin(); err != nil {
		return err
	}
	if err := picture.Check(string(c.Picture)); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" { // most of what a decision allocates is garbage soon
		defer debug.SetGCPercent(debug.SetGCPercent(200))
	}
	var p *LoginReport
	err := c.watched(ctx, s, func(log *logs.Reader) error {
		r, err := newGuardReplay(ctx, login.Config{Name: "replay"}, maxQuiet)
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
	if err := p.draw(); err != nil {
		return err
	}
	return p.print(s.Out, c.JSON)
}

// checkLogin refuses flags that the guard has no use for.
func (c *Command) checkLogin() error {
	return refuse("login", []conflict{
		{len(c.Limits) > 0, "limit", "the login guard has limits of its own"},
		{len(c.Compare) > 0, "compare", "the login guard has limits of its own"},
		{c.Estimator.Estimator != "", "estimator", "the login guard counts by windows"},
		{c.By.Text != "", "by", "the login guard counts by address, by account, and by both"},
		{len(c.Redis.InitAddress) > 0, "redis", "it decides in memory, with the answers that Redis would give"},
	})
}

// A conflict is a flag that another one has no use for.
type conflict struct {
	given     bool
	flag, why string
}

// refuse returns an error about the first conflict with a flag that is given.
func refuse(flag string, conflicts []conflict) error {
	for _, other := range conflicts {
		if other.given {
			return fmt.Errorf("--%s and --%s do not go together: %s; leave out one of them", flag, other.flag, other.why)
		}
	}
	return nil
}

// A guardReplay asks the login guard about the attempts of a log, at the times that the log tells. One attempt is charged to several subjects,
// each of which it shares with others: so they are decided one after the other.
type guardReplay struct {
	guard                *login.Guard
	now                  time.Time // of the attempt at hand
	budgets              []*spent
	allowed              int
	noAccount, noAddress int // attempts that no guard can decide
	waits                *picture.Waits
	timeline             *picture.Timeline // the first set is what was allowed, and each other one what a budget denied
	subjects             [3]subjects
}

// spent is what became of attempts for one budget: a denial is that of the first budget that denies.
type spent struct {
	budget login.Budget
	limits flags.Limits
	fate
}

// The subjects that the report has a list of.
const (
	byAddress = iota
	byAccount
	byPair
)

// subjects are the tallies of one kind, under one set of limits, and how the guard forgets one that has gone quiet.
type subjects struct {
	tallies
	forget func(ctx context.Context, subject string) error
}

// newGuardReplay takes how many quiet subjects of each kind it is to keep.
func newGuardReplay(ctx context.Context, cfg login.Config, keep int) (r *guardReplay, err error) {
	r = &guardReplay{now: time.Unix(0, 0), waits: &picture.Waits{}}
	cfg.Now = func() time.Time { return r.now }
	if r.guard, err = login.NewLocal(cfg); err != nil {
		return nil, err
	}
	of := map[login.Budget]flags.Limits{}
	for _, b := range []login.Budget{login.Address, login.Pair, login.Account, login.Streak, login.Total} { // as Begin asks them
		if of[b], err = limitsOf(ctx, r.guard, b); err != nil {
			return nil, err
		}
		r.budgets = append(r.budgets, &spent{budget: b, limits: of[b]})
	}
	r.timeline = picture.NewTimeline(1 + len(r.budgets))
	tally := func(limits flags.Limits) tallies { return newTallies(flags.Sets{limits}, estimator.Window, keep) }
	r.subjects = [...]subjects{
		byAddress: {tally(of[login.Address]), r.guard.Limiter(login.Address).Reset},
		byAccount: {tally(slices.Concat(of[login.Account], of[login.Streak])), func(ctx context.Context, account string) error { return r.guard.Forget(ctx, account) }},
		byPair:    {tally(of[login.Pair]), r.guard.Limiter(login.Pair).Reset},
	}
	return r, nil
}

// limitsOf asks a guard what it allows.
func limitsOf(ctx context.Context, g *login.Guard, b login.Budget) (ls flags.Limits, err error) {
	d, err := g.Limiter(b).Peek(ctx, "anybody")
	for _, u := range d.Usage {
		ls = append(ls, u.Limit)
	}
	return ls, err
}

// run decides all attempts of the log, while those after them are read.
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

// decideAll decides attempts until there are no more. After an error it lets the rest pass, so that nobody waits for it.
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

// decided is how many attempts the guard allowed or denied.
func (r *guardReplay) decided() int { return r.allowed + r.total().denied }

// total is what became of attempts for all budgets.
func (r *guardReplay) total() (f fate) {
	for _, b := range r.budgets {
		f.denied += b.denied
		f.succeeded += b.succeeded
	}
	return f
}

// decide asks the guard for each attempt of a line, and says how it ended.
func (r *guardReplay) decide(ctx context.Context, a logs.Attempt) error {
	ip, _ := netip.ParseAddr(a.Event) // what is no address, the guard refuses
	r.now = a.At
	for range a.Times {
		answer, err := r.guard.Begin(ctx, a.Account, ip)
		switch {
		case errors.Is(err, login.ErrEmptyAccount):
			r.noAccount++
			continue
		case errors.Is(err, login.ErrAddress):
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

// count counts an answer of the guard for all that the attempt was charged to.
func (r *guardReplay) count(a logs.Attempt, ip netip.Addr, answer *login.Attempt) {
	var fates []*fate
	address := subnet.Client(ip)
	for i, subject := range [...]string{byAddress: address, byAccount: a.Account, byPair: address + " " + a.Account} {
		t := r.subjects[i].of(subject, a.At)
		t.attempts++
		fates = append(fates, &t.sets[0])
	}
	budget := slices.IndexFunc(r.budgets, func(b *spent) bool { return b.budget == answer.Denied }) // -1 if it was allowed
	outcome := make([]bool, 1+len(r.budgets))
	outcome[1+budget] = true
	r.timeline.Add(a.At, outcome)
	if answer.Allowed {
		r.allowed++
		return
	}
	r.waits.Add(answer.RetryAfter)
	for _, f := range append(fates, &r.budgets[budget].fate) {
		f.deny(answer.RetryAfter, a.Succeeded)
	}
}

// sweep bounds the memory, also that of the guard.
func (r *guardReplay) sweep(ctx context.Context) error {
	for i := range r.subjects {
		if err := r.subjects[i].sweep(ctx, r.subjects[i].forget); err != nil {
			return err
		}
	}
	return nil
}
