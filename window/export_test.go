package window

// Under does what a decision does to find the override of an event.
func (l *Limiter) Under(event string) bool { return l.under(event) != l }
