package window

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/limiter"
)

// Override gives one event other limits for a limited time. It applies in all processes that have a
// limiter of the same Name with Config.Overrides set. See Limiter.Override.
type Override struct {
	Mode   OverrideMode
	Limits []Limit // for OverrideLimits: 1 to 31, without a Resolution; otherwise empty
	Why    string  // 1 to 200 bytes
	By     string  // who set it: up to 64 bytes; may be empty

	// Limiter.Overrides fills in the following fields. Limiter.Override ignores them.

	Event string    // as passed to Limiter.Override; "" if Redis holds only a hash, because the event is long or there is a Secret
	Tag   string    // the event as it appears in keys
	Since time.Time // when it was set, in UTC, on the Redis clock
	Until time.Time // when it ends
}

// OverrideMode is what an Override does.
type OverrideMode string

// The modes of an Override.
const (
	OverrideLimits    OverrideMode = "limits"    // its Limits replace those of the event
	OverrideBlock     OverrideMode = "block"     // denies everything without asking Redis; a Charge still counts
	OverrideUnlimited OverrideMode = "unlimited" // allows everything, counts nothing, and does not ask Redis
)

const (
	longestOverride = 366 * day
	longestWhy      = 200 // bytes
	longestBy       = 64  // bytes
)

// Override applies o to the event for the duration d, from 1 ms to 366 days, starting now. It
// replaces any override that the event already has. Other processes that are making decisions
// notice it within 5 s plus a round trip. This limiter notices it in one of its next decisions.
//
// o.Limits replace all limits of the event, including limits passed to With. As in With, a limit
// whose Per stays the same keeps its counts. A Name has at most 1,000 overrides. After
// ErrUncertain, set the override again. Override returns the same errors as AllowN, or an error
// that says what is wrong with o or d. Config.Overrides must be set.
func (l *Limiter) Override(ctx context.Context, event string, o Override, d time.Duration) error {
	if err := o.check(d); err != nil {
		return l.made().Wrap(err)
	}
	rest := []string{strconv.FormatInt(d.Milliseconds(), 10), o.what(), o.Why, o.By}
	_, err := l.changeOverride(ctx, "set", event, rest...)
	return err
}

// EndOverride removes the override of the event, and reports whether there was one. It returns the
// same errors as AllowN. Config.Overrides must be set.
func (l *Limiter) EndOverride(ctx context.Context, event string) (bool, error) {
	return l.changeOverride(ctx, "end", event)
}

// Overrides returns all overrides of the limiter's Name, in the order in which they were set.
// Overrides returns the same errors as AllowN. Config.Overrides must be set.
func (l *Limiter) Overrides(ctx context.Context) ([]Override, error) {
	if err := l.checkOverrides(); err != nil {
		return nil, err
	}
	_, all, err := l.overrides.list(ctx, 0)
	return all, err
}

// changeOverride calls the script to change the override of the event. It makes this limiter's next
// decision refresh the copy of the overrides.
func (l *Limiter) changeOverride(ctx context.Context, verb, event string, rest ...string) (bool, error) {
	if err := l.checkOverrides(); err != nil {
		return false, err
	}
	if err := l.base.Check(ctx, limiter.Some, event, 1); err != nil {
		return false, err
	}
	defer l.base.ForgetDenial(event)
	defer l.overrides.due.Store(true)
	reply, err := l.overrides.call(ctx, verb, slices.Concat([]string{l.base.Tag(event)}, rest))
	return err == nil && reply.Integers[0] > 0, err
}

func (l *Limiter) checkOverrides() error {
	base := l.made()
	if l.overrides == nil {
		return base.Wrap(errors.New("it was created without Overrides; set Config.Overrides, on Redis"))
	}
	return nil
}

// check returns an error if o or its duration d is invalid. The error says what is wrong and what
// to do.
func (o *Override) check(d time.Duration) error {
	switch {
	case d < time.Millisecond || d > longestOverride:
		return fmt.Errorf("an override for %v; choose 1ms to 366 days", d)
	case o.Why == "" || len(o.Why) > longestWhy:
		return fmt.Errorf("an override with a Why of %d bytes; say why, in 1 to %d bytes", len(o.Why), longestWhy)
	case len(o.By) > longestBy:
		return fmt.Errorf("an override with a By of %d bytes; use at most %d", len(o.By), longestBy)
	case o.Mode == OverrideLimits:
		return checkOverrideLimits(o.Limits)
	case o.Mode != OverrideBlock && o.Mode != OverrideUnlimited:
		return fmt.Errorf("an override with the Mode %q; choose OverrideLimits, OverrideBlock or OverrideUnlimited", o.Mode)
	case len(o.Limits) > 0:
		return fmt.Errorf("an override with the Mode %q and limits; choose OverrideLimits, or leave the limits out", o.Mode)
	}
	return nil
}

func checkOverrideLimits(limits []Limit) error {
	for _, l := range limits {
		if l.Resolution != 0 {
			return fmt.Errorf("an override with the limit %v; it keeps no Resolution, so leave out the @", l)
		}
	}
	_, err := NewLocal(Config{Name: "override", Limits: limits})
	if of := errors.Unwrap(err); of != nil {
		err = of
	}
	return err
}

// what returns the text that the script stores: "block", "unlimited", or the Per (in ms) and Max of
// each limit.
func (o *Override) what() string {
	if o.Mode != OverrideLimits {
		return string(o.Mode)
	}
	var numbers []string
	for _, l := range o.Limits {
		numbers = append(numbers, strconv.FormatInt(l.Per.Milliseconds(), 10), strconv.FormatInt(l.Max, 10))
	}
	return strings.Join(numbers, " ")
}

// setWhat is the inverse of what. It returns false for a text that this version cannot interpret.
func (o *Override) setWhat(what string) bool {
	o.Mode = OverrideMode(what)
	if o.Mode == OverrideBlock || o.Mode == OverrideUnlimited {
		return true
	}
	o.Mode = OverrideLimits
	numbers := strings.Fields(what)
	for ; len(numbers) > 1; numbers = numbers[2:] {
		per, err1 := strconv.ParseInt(numbers[0], 10, 64)
		most, err2 := strconv.ParseInt(numbers[1], 10, 64)
		if err1 != nil || err2 != nil {
			return false
		}
		o.Limits = append(o.Limits, Limit{Max: most, Per: time.Duration(per) * time.Millisecond})
	}
	return len(numbers) == 0 && len(o.Limits) > 0 && !slices.ContainsFunc(o.Limits, func(l Limit) bool { return l.check(true) != nil })
}

// under returns the limiter that decides on n units of the event: l, or a copy of l that applies
// the event's override.
func (l *Limiter) under(event string, n int64) *Limiter {
	if l.overrides == nil {
		return l
	}
	o, left := l.overrides.of(event)
	if left <= 0 {
		return l
	}
	by := *l
	by.overrides, by.override, by.wait = nil, o, left
	if o.Mode == OverrideLimits {
		by.base, by.limits, by.derived = o.base, o.Limits, true
	}
	by.setExcess(n, l.limits)
	return &by
}

// setExcess sets the excess of a request for n units, if the override of l never allows them, but
// the own limits do.
func (l *Limiter) setExcess(n int64, own []Limit) {
	if exceeds(n, l.limits) && !exceeds(n, own) {
		l.excess = n
	}
}

// exceeds reports whether one of the limits never allows n units.
func exceeds(n int64, limits []Limit) bool {
	return slices.ContainsFunc(limits, func(l Limit) bool { return n > l.Max })
}

// isFixed reports whether the override of l answers requests of the verb v without counting.
func (l *Limiter) isFixed(v limiter.Verb) bool {
	if l.override == nil {
		return false
	}
	switch l.override.Mode {
	case OverrideUnlimited:
		return true
	case OverrideBlock:
		return v != limiter.Charge
	default:
		return l.excess > 0 && !v.Partial()
	}
}

// fixed returns the override's answer to the request. Its Usage covers the limits of l.
func (l *Limiter) fixed(ctx context.Context, r *request) (d Decision, err error) {
	if err = l.base.Check(ctx, limiter.Some, r.event, r.n); err != nil {
		return d, err
	}
	mode := l.override.Mode
	d = Decision{Allowed: mode == OverrideUnlimited, At: l.override.Until.Add(-l.wait), Override: mode, Usage: make([]Usage, len(l.limits))}
	if d.Allowed {
		d.Granted = r.n
	} else {
		d.RetryAfter = l.wait
	}
	for i, limit := range l.limits {
		u := &d.Usage[i]
		u.Limit = limit
		if d.Allowed || mode == OverrideLimits && l.excess <= limit.Max {
			u.Remaining = limit.Max
		} else {
			u.RetryAfter, u.ResetAfter = l.wait, l.wait
		}
		if i == 0 || u.Remaining < d.Remaining {
			d.Remaining = u.Remaining
		}
	}
	return d, nil
}

// sleep waits until the request for n units of the event, which d denied under the override o, can
// be retried. It returns earlier if the override of the event changes, or if Redis did not decide
// and may have recovered.
func (l *Limiter) sleep(ctx context.Context, event string, n int64, o *override, d *Decision) error {
	end := time.Now().Add(d.RetryAfter)
	if deadline, bounded := ctx.Deadline(); l.overrides == nil || d.Degraded || bounded && deadline.Before(end) {
		return l.base.Sleep(ctx, n, d.RetryAfter, d.Degraded)
	}
	for {
		fresh := l.overrides.fresh(ctx)
		left := time.Until(end)
		if left <= 0 || l.under(event, n).override != o {
			return nil
		}
		if err := l.base.Sleep(ctx, n, min(left, fresh), false); err != nil {
			return err
		}
	}
}
