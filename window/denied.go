package window

import "context"

// Denial is the argument of Config.OnDenied: an attempt that was denied. Unlike an Observation it
// contains the event, so keep it out of metrics and traces. To count denials, use a List of package
// mostdenied.
//
// There is one Denial for each denied answer that Allow or AllowN returns, for each AllowUpTo that
// grants nothing, and for each check that AllowAll asks and that is denied. The denied tries of a
// Wait are not reported, unless the Wait fails after one: that is one Denial. Peek and Charge never
// deny.
type Denial struct {
	Limiter string // Config.Name

	// Event names the subject that was denied. If Hashed, it is the hash that replaces the event in
	// the key, because there is a Secret or the event is longer than 128 bytes. The key in Redis is
	// then Limiter, ":{", Event, "}:" and a letter for the kind of limiter.
	Event  string
	Hashed bool

	// Limit is the limit that denied, or the one with the longest wait if several did. It is zero
	// if an override blocks the event, or if a limiter in memory had no room for the event: see
	// Config.MaxEvents. For inflight, Max is how many units can be held at once, and Per is 0. For
	// pace, it is the limit with the lowest rate.
	Limit Limit

	// Decision is the denial. For inflight and pace, only RetryAfter and At are set.
	Decision
}

// denied calls OnDenied with the denial d. The key is that of the event, or "" if it was not
// computed.
func (l *Limiter) denied(ctx context.Context, event, key string, d *Decision) {
	if l.onDenied == nil {
		return
	}
	denial := Denial{Limiter: l.base.Name, Decision: *d}
	denial.Event, denial.Hashed = l.base.Shown(event, key)
	u := d.Tightest()
	if u.Used > 0 || d.Override == OverrideLimits && !d.Degraded { // otherwise there is a block, or there was no room
		denial.Limit = u.Limit
	}
	l.onDenied(ctx, denial)
}
