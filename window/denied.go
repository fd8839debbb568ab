package window

import (
	"context"
	"time"

	"github.com/slidegate/slidegate/internal/engine"
)

// Denial is the argument of Config.OnDenied: an attempt that was denied. Unlike an Observation it
// contains the event, so keep it out of metrics and traces. To count denials, use a List of package
// mostdenied.
//
// There is one Denial for each denied answer that a caller gets from Allow, AllowN or AllowEach,
// from AllowUpTo if it grants nothing, and from AllowAll for each check that was asked and denied.
// Denied tries within a Wait do not count, but a Wait that fails after one does. Peek and Charge
// never deny.
type Denial struct {
	Limiter string // Config.Name

	// Event names the subject that was denied. If Hashed, it is the hash that stands in the key in
	// place of the event, because there is a Secret or the event is longer than 128 bytes. The key
	// in Redis is then Limiter, ":{", Event, "}:" and a letter for the kind of limiter.
	Event  string
	Hashed bool

	// Limit is the limit that denied, or the one with the longest wait if several did. It is zero
	// if a limiter in memory had no room for the event: see Config.MaxEvents. For inflight, Max is
	// how many units can be held at once, and Per is 0. For pace, it is the limit with the lowest
	// rate.
	Limit Limit

	RetryAfter time.Duration // as in Decision
	At         time.Time     // as in Decision
}

// denied calls OnDenied if a request was denied. The key is that of the event, or empty if none was
// created.
func (l *Limiter) denied(ctx context.Context, v engine.Verb, event, key string, d *Decision) {
	if d.Allowed || l.onDenied == nil || !v.Denies() {
		return
	}
	denial := Denial{Limiter: l.engine.Name, RetryAfter: d.RetryAfter, At: d.At}
	denial.Event, denial.Hashed = l.engine.Shown(event, key)
	if u := d.Tightest(); u.Used > 0 { // otherwise there was no room
		denial.Limit = u.Limit
	}
	l.onDenied(ctx, denial)
}
