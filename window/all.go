package window

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/limiter"
)

// Check is one of the attempts that AllowAll decides on: N units of Event under Limiter, as in
// AllowN.
type Check struct {
	Limiter *Limiter // required; several checks can share a limiter
	Event   string   // names the subject that is limited; never empty
	N       int64    // units; 0 means 1
}

// JointDecision is the answer of AllowAll.
type JointDecision struct {
	Allowed bool // whether all checks were allowed and counted

	// RetryAfter is 0 if Allowed. Otherwise it is the longest wait of all denied checks that were
	// decided jointly or in memory. If all checks were decided that way, the same call succeeds
	// after that time, unless another caller used the slots. If the checks were asked one by one,
	// RetryAfter is the wait of the first denial.
	RetryAfter time.Duration

	// Decisions holds the decisions that were made, in the order of the checks. If Allowed, or if
	// all checks were decided jointly or in memory, it holds one for each check. Otherwise it ends
	// with the denial. If a check was allowed but another was denied, its Decision has Counted 0,
	// and its Usage does not include its units. A Decision is zero if it was not needed because the
	// DenialCache or an override already denied a later check.
	Decisions []Decision
}

// AllowAll decides on several events at once, such as a customer's requests and tokens. It counts
// all checks or none.
//
// Checks whose keys are on one server are decided jointly, by one script call. The script counts
// all of these checks or none, atomically, and takes one round trip. This works on a Redis that is
// not a cluster. On a cluster, it works for keys in the same hash slot: those of the same event and
// Secret. The limiters must share a Connection and have neither CountDenied nor Now, and no key may
// occur twice. Until AllowAll has proved that there is only one server, it asks one by one. It also
// asks one by one while another AllowAll is using one of the keys, since attempts on a hot key are
// better merged. https://github.com/slidegate/slidegate/blob/main/docs/guarantees.md#joint
//
// Otherwise AllowAll asks one by one, in the given order, up to the first denial or error. It then
// refunds what was counted, even if ctx is done. AllowAll can therefore return later than ctx is
// done: by up to one Timeout of the limiters, or 5 s if that is negative. Each check takes a round
// trip to Redis, unless it is asked jointly.
//
// If an override blocks the event of a check, or never allows its units (see Decision.Override),
// the call is denied before anything is sent. If an override makes the event of a check unlimited,
// that check is skipped.
//
// Put first what belongs to an attacker alone (the address), and last what the attacker shares with
// a victim (the account). An attempt that is denied because of its address then takes nothing from
// the account, not even for a moment.
//
// If ctx is canceled while the last check is in flight, that check can stay counted although the
// others are refunded. If a joint call is in flight, all of its checks can stay counted. If
// untrusted clients can cancel ctx, for example by closing a connection, pass
// context.WithoutCancel(ctx) instead.
//
// AllowAll never exceeds a limit. When it asks one by one, it can deny too much until units are
// refunded. If a refund fails, or the process dies, that lasts until the units are forgotten.
//
// AllowAll returns the same errors as AllowN. Each error names the position of its check, or of all
// checks that were decided jointly; after ErrUncertain, these checks may have been counted. If a
// joint call fails because of an outage, the Fallbacks decide in order. An error or a denial can be
// joined by errors about units that could not be refunded, which match ErrOutage or ErrUncertain.
// If there is an error and no denial, the JointDecision is zero. Mistakes are reported before
// anything is sent: a Check without a Limiter, or checks that together ask for more units of an
// event than its limits can ever allow.
//
// To refund an allowed JointDecision later, see UndoAll. If a limiter counts denied attempts, the
// attempt that it denied stays counted.
func AllowAll(ctx context.Context, checks ...Check) (JointDecision, error) {
	a, err := prepare(ctx, checks)
	if err != nil {
		return JointDecision{}, err
	}
	defer a.close()
	a.ask(ctx, a.fixed)
	for a.known == 0 && a.err == nil {
		if len(a.rest) == 0 {
			return JointDecision{Allowed: true, Decisions: a.decisions}, nil
		}
		if !a.askJointly(ctx) {
			a.ask(ctx, a.rest[:1])
			a.rest, a.apart = a.rest[1:], max(0, a.apart-1)
		}
	}
	return a.stopped(ctx)
}

// answers holds the answers to the checks of a call, in their order. First the checks that an
// override answers are asked, then the others: some jointly, some one by one. A denial or an error
// ends the call.
type answers struct {
	checks    []Check // each with the Limiter that decides on the event: see under
	decisions []Decision

	known int   // after a denial, how many of the decisions to return; before, 0
	err   error // the first error

	fixed   []int             // the indices of the checks that an override answers
	rest    []int             // the indices of the other checks that have not been asked yet
	apart   int               // how many of rest could not be asked jointly
	bundles []*limiter.Bundle // to close
}

// units returns the number of units that the check asks for.
func (c Check) units() int64 { return cmp.Or(c.N, 1) }

// prepare returns the checks, which have no answers yet. It returns an error if there are no checks,
// a check has no limiter, or a check can never be allowed.
func prepare(ctx context.Context, checks []Check) (*answers, error) {
	if len(checks) == 0 {
		return nil, errors.New("slidegate: AllowAll has no checks; give it at least one")
	}
	a := &answers{checks: make([]Check, len(checks)), decisions: make([]Decision, len(checks)), rest: make([]int, 0, len(checks))}
	for i, c := range checks {
		if c.Limiter == nil || !c.Limiter.base.Made() {
			return nil, fmt.Errorf("slidegate: check %d of AllowAll has no Limiter from New or NewLocal; create one", i+1)
		}
		own := c.Limiter
		c.Limiter = own.under(c.Event, 1)
		a.checks[i] = c
		n, v := a.total(i), limiter.Allow
		if c.Limiter != own {
			c.Limiter.setExcess(n, own.limits)
		}
		if c.Limiter.isFixed(limiter.Allow) {
			v = limiter.Some // no limit applies
			a.fixed = append(a.fixed, i)
		} else {
			a.rest = append(a.rest, i)
		}
		if err := c.Limiter.base.Check(ctx, v, c.Event, n); err != nil {
			return nil, ofCheck(i, err)
		}
	}
	return a, nil
}

// total returns how many units the i-th check and those before it ask for, of the same event and
// under the same limits.
func (a *answers) total(i int) int64 {
	last := a.checks[i]
	n := last.units()
	for _, c := range a.checks[:i] {
		if n > 0 && n <= maxUnits && c.Limiter.base.Same(&last.Limiter.base) && c.Event == last.Event {
			n += c.units()
		}
	}
	return n
}

// close closes the bundles. Until then, their keys count as in use, even for checks that are asked
// one by one.
func (a *answers) close() {
	for _, b := range a.bundles {
		b.Close()
	}
}

// ask asks the checks with the given indices one by one, up to the first error.
func (a *answers) ask(ctx context.Context, indices []int) {
	for _, i := range indices {
		c := a.checks[i]
		var err error
		if a.decisions[i], err = c.Limiter.AllowN(ctx, c.Event, c.units()); err != nil {
			a.err = ofCheck(i, err)
			return
		}
		if !a.decisions[i].Allowed {
			a.known = i + 1
		}
	}
}

// askJointly tries to ask the next checks with one script call, and reports whether it did. In an
// outage, the Fallbacks decide one after another until one denies.
func (a *answers) askJointly(ctx context.Context) bool {
	if a.apart > 0 || len(a.rest) < 2 {
		return false
	}
	asks := make([]limiter.Ask, 0, len(a.rest))
	for _, i := range a.rest {
		c := a.checks[i]
		asks = append(asks, limiter.Ask{Limiter: &c.Limiter.base, Event: c.Event, N: c.units()})
	}
	b := limiter.NewBundle(asks)
	if b == nil {
		return false
	}
	began := time.Now()
	a.bundles = append(a.bundles, b)
	replies, decided := b.Decide(ctx)
	if !decided {
		a.apart = b.Len()
		return false
	}
	asked := a.rest[:b.Len()]
	a.rest = a.rest[b.Len():]
	for k, i := range asked {
		if err := a.take(ctx, i, &replies[k], began); health.IsOutage(err) {
			a.err = fmt.Errorf("%w (checks %d to %d of AllowAll)", err, asked[0]+1, asked[len(asked)-1]+1)
		} else if err != nil {
			a.err = ofCheck(i, err)
		}
		denied := !a.decisions[i].Allowed
		if denied || a.known > 0 { // a denial is followed by the other decisions of its script call
			a.known = i + 1
		}
		if denied && replies[k].Err != nil {
			break
		}
	}
	return true
}

// take stores the reply that a joint call got for the i-th check.
func (a *answers) take(ctx context.Context, i int, reply *limiter.BundleReply, began time.Time) error {
	c, d := a.checks[i], &a.decisions[i]
	switch {
	case !reply.Decided:
		return nil
	case reply.Fits:
		c.Limiter.fill(d, c.Limiter, &reply.Reply, c.units())
		return nil
	}
	r := request{limiter.Allow, c.Event, c.units(), began}
	err := c.Limiter.conclude(ctx, &r, &reply.Reply, reply.Err, d)
	c.Limiter.report(ctx, &r, &reply.Reply, err, d)
	return err
}

// stopped refunds the units that were counted, and returns the result of a call that a denial or an
// error ended.
func (a *answers) stopped(ctx context.Context) (JointDecision, error) {
	err := a.giveBack(ctx)
	if a.err != nil {
		return JointDecision{}, errors.Join(a.err, err)
	}
	if a.inMemory(a.known - 1) {
		a.peek(ctx)
	}
	d := JointDecision{Decisions: a.decisions[:a.known]}
	for _, decided := range d.Decisions {
		d.RetryAfter = max(d.RetryAfter, decided.RetryAfter)
	}
	return d, err
}

// peek peeks at the next checks, as long as they are decided in memory.
func (a *answers) peek(ctx context.Context) {
	for _, i := range a.rest {
		if !a.inMemory(i) {
			return
		}
		c := a.checks[i]
		var r limiter.Reply
		if c.Limiter.base.Decide(ctx, &r, limiter.Peek, c.Event, c.units()) == nil {
			c.Limiter.fill(&a.decisions[i], c.Limiter, &r, c.units())
			a.decisions[i].takeBack(c.units())
		}
		a.known = i + 1
	}
}

// inMemory reports whether the i-th check is decided in memory.
func (a *answers) inMemory(i int) bool { return a.checks[i].Limiter.base.InMemory() }

// giveBack concurrently refunds all units that were counted: the sooner they are refunded, the
// fewer other attempts are denied. It returns errors about units that stay or may stay counted.
func (a *answers) giveBack(ctx context.Context) error {
	var undos []Undo
	var indices []int
	for i, c := range a.checks {
		if d := a.decisions[i]; d.Allowed {
			undos, indices = append(undos, Undo{Limiter: c.Limiter, Event: c.Event, Decision: d}), append(indices, i)
		}
	}
	var errs []error
	for k, err := range UndoAll(ctx, undos...) {
		d := &a.decisions[indices[k]]
		if err != nil {
			errs = append(errs, ofCheck(indices[k], fmt.Errorf("%d units stay counted, because they could not be refunded: %w", d.Counted, err)))
		} else {
			d.takeBack(d.Counted)
		}
	}
	return errors.Join(errs...)
}

// ofCheck adds the number of the i-th check to its error, since several checks can have the same
// limiter.
func ofCheck(i int, err error) error { return fmt.Errorf("%w (check %d of AllowAll)", err, i+1) }
