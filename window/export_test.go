package window

import "time"

// Under looks up the override of an event, as a decision does, and reports whether there is one.
func (l *Limiter) Under(event string) bool { return l.under(event, 1) != l }

// ReadOverridesEvery sets the age from which a decision refreshes the copy of the overrides. Call it
// before the first decision.
func (l *Limiter) ReadOverridesEvery(age time.Duration) { l.overrides.every = age }
