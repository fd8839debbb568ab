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

// Check is one of the attempts of AllowAll: N units of the Event under the Limiter, as in AllowN.
type Check struct {
	Limiter *Limiter // decides; several checks can have different ones, or the same
	Event   string   // names the subject that is limited; never empty
	N       int64    // units; 0 stands for 1

	// Together asks at the same time as the check before, to save a round trip to Redis. If that
	// one denies, this one may have counted its units, which are then given back. It has no effect
	// on checks that are decided jointly, or in memory.
	Together bool
}

// JointDecision is the answer of AllowAll.
type JointDecision struct {
	Allowed bool // all checks were admitted, and counted

	// RetryAfter is 0 if Allowed. Otherwise it is the longest wait of all checks that deny and were
	// decided jointly or in memory, so that the same call then succeeds if they were all checks and
	// nobody else used the slots. Of checks asked one by one it is that of the first that denied.
	RetryAfter time.Duration

	// Decisions are those that were made, in the order of the checks: all if Allowed, or if all were
	// decided jointly or in memory, else up to the denial. Counted is 0 in those that would be
	// admitted beside a denial, and their Usage is without their units. A Decision is zero if a
	// DenialCache or an override knew that a later check denies.
	Decisions []Decision
}

// AllowAll decides about several events at once, such as requests and tokens of a customer: all
// checks are counted, or none.
//
// Checks whose keys are on one server are decided jointly, by one script call. That counts all of
// them or none, at one moment, and takes one round trip. It is the case on a Redis that is no
// cluster, or that one, for keys of one hash slot: those of one event and Secret. The limiters must
// share a Connection, have neither CountDenied nor Now, and no key may occur twice. AllowAll first
// proves that there is one server, and meanwhile asks one by one. It also does so while another
// AllowAll has one of the keys in use, since attempts on a hot key are better merged.
// https://github.com/slidegate/slidegate/blob/main/docs/guarantees.md#joint
//
// Otherwise AllowAll asks in the order given, up to the first denial or error. Then it gives back
// what was counted, even if ctx has ended. So it can return later than ctx ends: by one more Timeout
// of the limiters, or by 5 s where that is negative. Each check takes a round trip to Redis, unless it
// is asked Together with the one before it, or jointly.
//
// A check whose event an override blocks denies the call before anything is asked. One that an override
// lets through is not asked.
//
// Put first what belongs to an attacker alone (the address), and last what the victim shares (the
// account). An attempt that is denied for its address then takes nothing from the account, not even
// for a moment. For the same reason, ask Together only where units that count for a moment deny
// nobody else.
//
// A client that can end ctx while the last check is on its way can leave that one counted, and have
// the others given back; after a joint call, all stay counted. Where strangers can end it, for example
// by closing a connection, pass a context that they cannot end, from context.WithoutCancel.
//
// AllowAll never admits beyond a limit. Asked one by one, it can deny too much while units are on
// their way back. If giving back failed, or the process died, that lasts until the units are forgotten.
//
// Errors are as those of AllowN. Each names the position of its check, or of all that were decided
// jointly; after ErrUncertain these may be counted. In an outage of a joint call, the Fallbacks decide
// in order. Beside an error or a denial, other errors can report units that could not be given back.
// They match ErrOutage or ErrUncertain. With an error and no denial, the JointDecision is zero.
// Mistakes are reported before anything is sent: a Check without a Limiter, or checks whose units of
// one event together exceed what its limits ever admit.
//
// To give back an allowed JointDecision later, see UndoAll. A limiter that counts denied attempts keeps the one that it denied.
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

// allowAll decides about checks of which none is fixed. If places is not nil, it has the index of each
// among those that the caller gave.
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

// answers are the answers to checks, in their order. They are asked part by part.
type answers struct {
	checks    []Check
	places    []int // of the checks in the call; nil if they are all of it
	decisions []Decision
	errs      []error

	part, next int  // the first check of the part that was asked last, and the first one after it
	jointly    bool // how that was asked
	joined     int  // the end of that part, if jointly

	joints []*engine.Joint // to close
	apart  int             // the first check after those that could not be asked jointly
}

// close ends the joints. Until then, their keys are in use, also if they are asked about one by one.
func (a *answers) close() {
	for _, j := range a.joints {
		j.Close()
	}
}

// askJointly asks a part by one script call, and reports whether it did.
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

// take takes the reply of a joint call to the i-th check. It reports whether to take the next one: in an
// outage, the Fallbacks decide up to a denial.
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

// askStage asks a check, and those that are Together with it.
func (a *answers) askStage(ctx context.Context) {
	for a.next++; a.next < len(a.checks) && a.checks[a.next].Together && !a.inMemory(a.next); {
		a.next++
	}
	calls.Concurrently(a.part, a.next, a.inMemory, func(i int) {
		c := a.checks[i]
		a.decisions[i], a.errs[i] = c.Limiter.AllowN(ctx, c.Event, c.units())
	})
}

// stop returns the check of the part that stops: the first one that does. If they were asked jointly, an
// error comes before denials. It is next if there is none.
func (a *answers) stop() int {
	first := a.next
	for i := a.next - 1; i >= a.part; i-- {
		if a.stops(i) && (!a.jointly || first == a.next || a.errs[i] != nil || a.errs[first] == nil) {
			first = i
		}
	}
	return first
}

// stops reports whether nothing is asked after the i-th check.
func (a *answers) stops(i int) bool { return a.errs[i] != nil || !a.decisions[i].Allowed }

// stopped gives back the units of the checks that were asked, and returns the JointDecision that
// the i-th one stopped.
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

// peek looks how the checks in memory stand from the i-th one on, and returns the first other one.
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

// asks returns the checks that were not asked yet.
func (a *answers) asks() []engine.Ask {
	asks := make([]engine.Ask, 0, len(a.checks)-a.next)
	for _, c := range a.checks[a.next:] {
		asks = append(asks, engine.Ask{Limiter: &c.Limiter.engine, Event: c.Event, N: c.units()})
	}
	return asks
}

// ofCheck adds to an error the number of its check, since several checks can have the same limiter, or
// those of all checks that were decided jointly.
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

// ofCheck adds to an error the number of its check.
func ofCheck(i int, err error) error { return fmt.Errorf("%w (check %d of AllowAll)", err, i+1) }

// validate refuses checks without a limiter, or that can never be admitted. Several checks of one
// event under one limiter are added up.
func validate(ctx context.Context, checks []Check) error {
	if len(checks) == 0 {
		return errors.New("slidegate: AllowAll has no checks; give it at least one")
	}
	for i, c := range checks {
		if c.Limiter == nil || !c.Limiter.engine.Made() {
			return fmt.Errorf("slidegate: check %d of AllowAll has no Limiter from New or NewLocal; make one", i+1)
		}
		n := c.units()
		for _, before := range checks[:i] {
			if n > 0 && n <= maxUnits && before.Limiter.engine.Same(&c.Limiter.engine) && before.Event == c.Event {
				n += before.units()
			}
		}
		v := engine.Allow
		if c.isFixed() {
			v = engine.Some // no limit is asked
		}
		if err := c.Limiter.engine.Check(ctx, v, c.Event, n); err != nil {
			return ofCheck(i, err)
		}
	}
	return nil
}

// giveBack refunds all units that were counted, concurrently: the sooner they are back, the fewer
// others are denied. It returns errors about units that stay, or may stay, counted, except in the
// check that stopped.
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
			errs[i] = ofCheck(a.place(i), fmt.Errorf("%d units stay counted, since they could not be given back: %w", a.decisions[i].Counted, err))
		} else {
			a.decisions[i].takeBack(a.decisions[i].Counted)
		}
	}
	return errors.Join(errs...)
}
