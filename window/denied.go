package window

import (
	"context"
	"time"

	"github.com/slidegate/slidegate/internal/engine"
)

// Denial is the argument of Config.OnDenied: an attempt that was denied. Unlike an Observation it has
// the event, so keep it out of metrics and traces. List of package mostdenied counts denials.
//
// A Denial is what a caller gets: of Allow, AllowN and AllowEach, of AllowUpTo if it grants nothing, and
// of AllowAll for each check that was asked and denied. A denied try within a Wait is none, but a Wait
// that fails after one is. Peek and Charge deny nothing.
type Denial struct {
	Limiter string // Config.Name

	// Event names the subject that was denied. If Hashed, it is the hash that stands in the key in
	// place of the event, since there is a Secret, or since the event is longer than 128 bytes. The
	// key in Redis is then Limiter, ":{", Event, "}:" and a letter for the kind of limiter.
	Event  string
	Hashed bool

	// Limit is the limit that denied, or the one with the longest wait if several did. It is zero if a
	// limiter in memory had no room for the event: see Config.MaxEvents. Of inflight, Max is how many
	// units can be held at once, and Per is 0. Of pace, it is the limit with the lowest rate.
	Limit Limit

	RetryAfter time.Duration // as in Decision
	At         time.Time     // as in Decision
}

// denied calls OnDenied if a request was denied. The key is that of the event, or empty if it was not
// made.
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
