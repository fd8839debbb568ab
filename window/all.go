package window

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/internal/pipeline"
)

// Check is one of the attempts of AllowAll: N units of Event under Limiter, as in AllowN.
type Check struct {
	Limiter *Limiter // decides; checks can share a limiter or use different ones
	Event   string   // names the subject that is limited; never empty
	N       int64    // units; 0 means 1

	// Together sends this check at the same time as the one before it, to save a round trip to
	// Redis. If the earlier one denies, the units that this one may have counted are refunded.
	// Together has no effect on checks that are decided jointly or in memory.
	Together bool
}

// JointDecision is the answer of AllowAll.
type JointDecision struct {
	Allowed bool // all checks were allowed and counted

	// RetryAfter is 0 if Allowed. Otherwise it is the longest wait of the denying checks that were
	// decided jointly or in memory. If all checks were decided that way, the same call succeeds
	// after that time, unless another caller used the slots. For checks asked one by one, it is the
	// wait of the first denial.
	RetryAfter time.Duration

	// Decisions holds the decisions that were made, in the order of the checks. It holds all of
	// them if Allowed, or if all were decided jointly or in memory. Otherwise it ends with the
	// denial. A check that would be allowed, but was not because another one denied, has Counted 0
	// and a Usage without its units. A Decision is zero if a DenialCache or an override already
	// knew that a later check denies.
	Decisions []Decision
}

// AllowAll decides on several events at once, such as the requests and the tokens of a customer:
// all checks are counted, or none.
//
// Checks whose keys are on one server are decided jointly, by one script call. It counts all of
// them or none, at one moment, and takes one round trip. This works on a Redis that is not a
// cluster. On a cluster, it works for keys of one hash slot: those of the same event and Secret.
// The limiters must share a Connection and have neither CountDenied nor Now, and no key may occur
// twice. AllowAll first proves that there is one server, and meanwhile asks one by one. It also
// asks one by one while another AllowAll is using one of the keys, since attempts on a hot key are
// better merged. https://github.com/slidegate/slidegate/blob/main/docs/guarantees.md#joint
//
// Otherwise AllowAll asks in the order given, up to the first denial or error. Then it refunds
// what was counted, even if ctx has ended. It can therefore return after ctx has ended: later by
// one Timeout of the limiters, or by 5 s if that is negative. Each check takes a round trip to
// Redis, unless it is asked jointly or Together with the one before it.
//
// A check whose event is blocked by an override denies the call before anything is sent. A check
// whose event an override makes unlimited is skipped.
//
// Put first what belongs to an attacker alone (the address), and last what the victim shares (the
// account). An attempt that is denied for its address then takes nothing from the account, not even
// for a moment. For the same reason, use Together only where units that count for a moment cannot
// deny anyone else.
//
// A client that can end ctx while the last check is on its way can leave that check counted while
// the others are refunded. After a joint call, all of them stay counted. If untrusted clients can
// end ctx, for example by closing a connection, pass one that they cannot end, from
// context.WithoutCancel.
//
// AllowAll never allows more than a limit. Asking one by one, it can deny too much while units are
// being refunded. If refunding failed, or the process died, that lasts until they are
// forgotten.
//
// Errors are those of AllowN. Each names the position of its check, or of all that were decided
// jointly; after ErrUncertain these may be counted. In an outage of a joint call, the Fallbacks
// decide in order. An error or a denial can be joined by errors about units that could not be given
// back. Those match ErrOutage or ErrUncertain. With an error and no denial, the JointDecision is
// zero. Mistakes are reported before anything is sent: a Check without a Limiter, or checks whose
// units of one event together exceed what its limits can ever allow.
//
// To refund an allowed JointDecision later, see UndoAll. A limiter that counts denied attempts
// keeps the attempt that it denied.
func AllowAll(ctx context.Context, checks ...Check) (JointDecision, error) {
	checks = underAll(checks)
	if err := validate(ctx, checks); err != nil {
		return JointDecision{}, err
	}
	if slices.ContainsFunc(checks, Check.isFixed) {
		return allowSome(ctx, checks)
	}
	return allowAll(ctx, checks, nil)
}

// allowAll decides on checks none of which is fixed. If places is not nil, it maps each check to
// its index in the caller's checks.
func allowAll(ctx context.Context, checks []Check, places []int) (JointDecision, error) {
	a := &answers{checks: checks, places: places, decisions: make([]Decision, len(checks)), errs: make([]error, len(checks))}
	defer a.close()
	for a.next < len(checks) {
		if a.part = a.next; !a.askJointly(ctx) {
			a.askStage(ctx)
		}
		if i := a.stop(); i < a.next {
			return a.stopped(ctx, i)
		}
	}
	return JointDecision{Allowed: true, Decisions: a.decisions}, nil
}

// answers holds the answers to checks, in their order. The checks are asked part by part.
type answers struct {
	checks    []Check
	places    []int // indices in the caller's checks; nil if checks are all of them
	decisions []Decision
	errs      []error

	part, next int  // the first check of the part that was asked last, and the first check after that part
	jointly    bool // whether that part was asked jointly
	joined     int  // the end of that part, if jointly

	joints []*engine.Joint // to close
	apart  int             // the first check after those that could not be asked jointly
}

// close closes the joints. Until then, their keys are in use, even if they are asked about one by
// one.
func (a *answers) close() {
	for _, j := range a.joints {
		j.Close()
	}
}

// askJointly asks a part with one script call, and reports whether it did.
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

// take stores the reply of a joint call to the i-th check. It reports whether to take the next one:
// in an outage, the Fallbacks decide until one denies.
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

// askStage asks a check and those after it that are Together with it.
func (a *answers) askStage(ctx context.Context) {
	for a.next++; a.next < len(a.checks) && a.checks[a.next].Together && !a.inMemory(a.next); {
		a.next++
	}
	calls.Concurrently(a.part, a.next, a.inMemory, func(i int) {
		c := a.checks[i]
		a.decisions[i], a.errs[i] = c.Limiter.AllowN(ctx, c.Event, c.units())
	})
}

// stop returns the first check of the part that stops the call, or next if there is none. In a part
// that was asked jointly, errors take precedence over denials.
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

// stopped refunds the units that were counted, and returns the JointDecision of a call that the
// i-th check stopped.
func (a *answers) stopped(ctx context.Context, i int) (JointDecision, error) {
	err := a.giveBack(ctx, i)
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

// peek peeks at the checks in memory from the i-th one on, up to one that is not in memory, and
// returns the index of that one.
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

// asks returns the checks that have not been asked yet.
func (a *answers) asks() []engine.Ask {
	asks := make([]engine.Ask, 0, len(a.checks)-a.next)
	for _, c := range a.checks[a.next:] {
		asks = append(asks, engine.Ask{Limiter: &c.Limiter.engine, Event: c.Event, N: c.units()})
	}
	return asks
}

// ofCheck adds the number of its check to an error, since several checks can have the same limiter.
// An outage of a joint call names all checks that were decided jointly.
func (a *answers) ofCheck(i int, err error) error {
	if a.jointly && pipeline.IsOutage(err) && a.part <= i {
		return fmt.Errorf("%w (checks %d to %d of AllowAll)", err, a.place(a.part)+1, a.place(a.joined-1)+1)
	}
	return ofCheck(a.place(i), err)
}

// place returns the index of the i-th check in the call.
func (a *answers) place(i int) int {
	if a.places == nil {
		return i
	}
	return a.places[i]
}

// ofCheck adds the number of its check to an error.
func ofCheck(i int, err error) error { return fmt.Errorf("%w (check %d of AllowAll)", err, i+1) }

// validate returns an error for a check without a limiter, or that can never be allowed. It adds up
// several checks of one event under one limiter.
func validate(ctx context.Context, checks []Check) error {
	if len(checks) == 0 {
		return errors.New("slidegate: AllowAll has no checks; give it at least one")
	}
	for i, c := range checks {
		if c.Limiter == nil || !c.Limiter.engine.Made() {
			return fmt.Errorf("slidegate: check %d of AllowAll has no Limiter from New or NewLocal; create one", i+1)
		}
		n := c.units()
		for _, before := range checks[:i] {
			if n > 0 && n <= maxUnits && before.Limiter.engine.Same(&c.Limiter.engine) && before.Event == c.Event {
				n += before.units()
			}
		}
		v := engine.Allow
		if c.isFixed() {
			v = engine.Some // no limit applies
		}
		if err := c.Limiter.engine.Check(ctx, v, c.Event, n); err != nil {
			return ofCheck(i, err)
		}
	}
	return nil
}

// giveBack refunds all units that were counted, concurrently: the sooner they are back, the fewer
// other attempts are denied. It returns errors about units that stay or may stay counted, except
// for the check that stopped the call.
func (a *answers) giveBack(ctx context.Context, stopped int) error {
	errs := make([]error, a.next)
	var undos []Undo
	var indices []int
	for i, c := range a.checks[:a.next] {
		if err := a.errs[i]; err != nil && i != stopped && errors.Is(err, ErrUncertain) {
			errs[i] = ofCheck(a.place(i), err)
		} else if !a.stops(i) {
			undos, indices = append(undos, Undo{c.Limiter, c.Event, &a.decisions[i]}), append(indices, i)
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
