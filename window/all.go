package window

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/internal/health"
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
	checks, err := prepare(ctx, checks)
	if err != nil {
		return JointDecision{}, err
	}
	if slices.ContainsFunc(checks, Check.isFixed) {
		return allowSome(ctx, checks)
	}
	return allowAll(ctx, checks, nil)
}

// allowAll decides on checks that no override answers. If places is not nil, it maps each check to
// its index in the caller's checks.
func allowAll(ctx context.Context, checks []Check, places []int) (JointDecision, error) {
	a := &answers{checks: checks, places: places, decisions: make([]Decision, len(checks)), errs: make([]error, len(checks))}
	defer a.close()
	for a.next < len(checks) {
		if a.part = a.next; !a.askJointly(ctx) {
			a.askNext(ctx)
		}
		if i := a.stop(); i < a.next {
			return a.stopped(ctx, i)
		}
	}
	return JointDecision{Allowed: true, Decisions: a.decisions}, nil
}

// answers holds the answers to the checks, in the same order. The checks are asked in consecutive
// parts.
type answers struct {
	checks    []Check
	places    []int // indices in the caller's checks; nil if checks are all of them
	decisions []Decision
	errs      []error

	part, next int  // the start and the end of the part that was asked last
	jointly    bool // whether that part was asked jointly
	joined     int  // the end of the part that was asked jointly last

	joints []*engine.Joint // to close
	apart  int             // checks before this one could not be asked jointly
}

// close closes the joints. Until then, their keys count as in use, even for checks that are asked
// one by one.
func (a *answers) close() {
	for _, j := range a.joints {
		j.Close()
	}
}

// askJointly tries to ask the next part with one script call, and reports whether it did.
func (a *answers) askJointly(ctx context.Context) bool {
	a.jointly = false
	if a.next < a.apart {
		return false
	}
	j, began := engine.NewJoint(a.asks()), time.Now()
	if j == nil {
		return false
	}
	a.joints = append(a.joints, j)
	replies, decided := j.Decide(ctx)
	if a.jointly = decided; !decided {
		a.apart = a.next + j.Len()
		return false
	}
	a.joined = a.part + j.Len()
	for proceeds := true; proceeds && a.next < a.joined; a.next++ {
		proceeds = a.take(ctx, a.next, &replies[a.next-a.part], began)
	}
	return true
}

// take stores the reply that a joint call got for the i-th check. It reports whether to take the
// next reply: in an outage, the Fallbacks decide one after another until one denies.
func (a *answers) take(ctx context.Context, i int, r *engine.JointReply, began time.Time) bool {
	c := a.checks[i]
	switch {
	case r.Reply == nil:
	case r.Fits:
		c.Limiter.fill(&a.decisions[i], c.units(), r.Reply)
		c.Limiter.mark(&a.decisions[i])
	default:
		a.errs[i] = c.Limiter.finish(ctx, &a.decisions[i], engine.Allow, c.Event, c.units(), r.Reply, r.Err, began)
	}
	return r.Err == nil || !a.stops(i)
}

// askNext asks the next check by itself.
func (a *answers) askNext(ctx context.Context) {
	i, c := a.next, a.checks[a.next]
	a.decisions[i], a.errs[i] = c.Limiter.AllowN(ctx, c.Event, c.units())
	a.next++
}

// stop returns the index of the first check of the part whose answer ends the call, or next if
// there is none. In a part that was asked jointly, errors take precedence over denials.
func (a *answers) stop() int {
	first := a.next
	for i := a.next - 1; i >= a.part; i-- {
		if a.stops(i) && (!a.jointly || first == a.next || a.errs[i] != nil || a.errs[first] == nil) {
			first = i
		}
	}
	return first
}

// stops reports whether the answer to the i-th check ends the call.
func (a *answers) stops(i int) bool { return a.errs[i] != nil || !a.decisions[i].Allowed }

// stopped refunds the units that were counted, and returns the result of a call that the i-th check
// ended.
func (a *answers) stopped(ctx context.Context, i int) (JointDecision, error) {
	err := a.giveBack(ctx)
	if cause := a.errs[i]; cause != nil {
		return JointDecision{}, errors.Join(a.ofCheck(i, cause), err)
	}
	known := i + 1
	if a.jointly {
		known = a.next
	} else if a.inMemory(i) {
		known = a.peek(ctx, known)
	}
	d := JointDecision{Decisions: a.decisions[:known]}
	for _, denied := range d.Decisions[i:] {
		d.RetryAfter = max(d.RetryAfter, denied.RetryAfter)
	}
	return d, err
}

// peek peeks at consecutive checks that are decided in memory, starting with the i-th check. It
// returns the index of the first check after them.
func (a *answers) peek(ctx context.Context, i int) int {
	for ; i < len(a.checks) && a.inMemory(i); i++ {
		c := a.checks[i]
		var r engine.Reply
		if c.Limiter.engine.Decide(ctx, &r, engine.Peek, c.Event, c.units()) == nil {
			c.Limiter.fill(&a.decisions[i], c.units(), &r)
			a.decisions[i].takeBack(c.units())
		}
	}
	return i
}

func (c Check) units() int64 { return cmp.Or(c.N, 1) }

// inMemory reports whether the i-th check is decided in memory.
func (a *answers) inMemory(i int) bool { return a.checks[i].Limiter.engine.InMemory() }

// asks returns the checks that have not been asked yet, in the form that package engine takes.
func (a *answers) asks() []engine.Ask {
	asks := make([]engine.Ask, 0, len(a.checks)-a.next)
	for _, c := range a.checks[a.next:] {
		asks = append(asks, engine.Ask{Limiter: &c.Limiter.engine, Event: c.Event, N: c.units()})
	}
	return asks
}

// ofCheck adds the number of the i-th check to its error, since several checks can have the same
// limiter. If err is an outage of a joint call, ofCheck adds the numbers of all checks in that
// call.
func (a *answers) ofCheck(i int, err error) error {
	if a.jointly && health.IsOutage(err) && a.part <= i {
		return fmt.Errorf("%w (checks %d to %d of AllowAll)", err, a.place(a.part)+1, a.place(a.joined-1)+1)
	}
	return ofCheck(a.place(i), err)
}

// place returns the index of the i-th check in the caller's checks.
func (a *answers) place(i int) int {
	if a.places == nil {
		return i
	}
	return a.places[i]
}

// ofCheck adds the number of the i-th check to its error.
func ofCheck(i int, err error) error { return fmt.Errorf("%w (check %d of AllowAll)", err, i+1) }

// prepare replaces the limiter of each check with the limiter that decides on its event: see under.
// It does not modify checks. It returns an error if there are no checks, a check has no limiter, or
// a check can never be allowed.
func prepare(ctx context.Context, checks []Check) ([]Check, error) {
	if len(checks) == 0 {
		return nil, errors.New("slidegate: AllowAll has no checks; give it at least one")
	}
	with, replaced := checks, false
	for i, c := range checks {
		if c.Limiter == nil || !c.Limiter.engine.Made() {
			return nil, fmt.Errorf("slidegate: check %d of AllowAll has no Limiter from New or NewLocal; create one", i+1)
		}
		if by := c.Limiter.under(c.Event, 1); by != c.Limiter {
			if !replaced {
				with, replaced = slices.Clone(checks), true
			}
			with[i].Limiter = by
			by.setExcess(total(with[:i+1]), c.Limiter.limits)
		}
		v := engine.Allow
		if with[i].isFixed() {
			v = engine.Some // no limit applies
		}
		if err := with[i].Limiter.engine.Check(ctx, v, c.Event, total(with[:i+1])); err != nil {
			return nil, ofCheck(i, err)
		}
	}
	return with, nil
}

// total returns how many units the last of the checks and those before it ask for, of the same event
// and under the same limits.
func total(checks []Check) int64 {
	last := checks[len(checks)-1]
	n := last.units()
	for _, c := range checks[:len(checks)-1] {
		if n > 0 && n <= maxUnits && c.Limiter.engine.Same(&last.Limiter.engine) && c.Event == last.Event {
			n += c.units()
		}
	}
	return n
}

// giveBack concurrently refunds all units that were counted: the sooner they are refunded, the
// fewer other attempts are denied. It returns errors about units that stay or may stay counted.
func (a *answers) giveBack(ctx context.Context) error {
	errs := make([]error, a.next)
	var undos []Undo
	var indices []int
	for i, c := range a.checks[:a.next] {
		if !a.stops(i) {
			undos, indices = append(undos, Undo{Limiter: c.Limiter, Event: c.Event, Decision: a.decisions[i]}), append(indices, i)
		}
	}
	for k, err := range UndoAll(ctx, undos...) {
		if i := indices[k]; err != nil {
			errs[i] = ofCheck(a.place(i), fmt.Errorf("%d units stay counted, because they could not be refunded: %w", a.decisions[i].Counted, err))
		} else {
			a.decisions[i].takeBack(a.decisions[i].Counted)
		}
	}
	return errors.Join(errs...)
}
