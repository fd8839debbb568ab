package window

// Under looks up the override of an event, as a decision does, and reports whether there is one.
func (l *Limiter) Under(event string) bool { return l.under(event, 1) != l }
