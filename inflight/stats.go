package inflight

// Stats counts what a Limiter holds in this process, for all events together.
type Stats struct {
	Limiter  string // Config.Name
	Held     int64  // units of leases that are neither released nor lost
	Degraded int64  // how many of the Held units the Fallback holds
	Waiting  int64  // callers in Acquire
}

// Stats returns what l, and all limiters derived from it with With, hold in this process. It does
// not ask Redis. Package otelgate exports these numbers as metrics.
func (l *Limiter) Stats() Stats {
	s := Stats{Limiter: l.made().Name}
	l.mu.Lock()
	defer l.mu.Unlock()
	for lease := range l.held {
		if s.Held += lease.state.n; lease.state.degraded {
			s.Degraded += lease.state.n
		}
	}
	for _, on := range l.lines {
		s.Waiting += on.waiters
	}
	return s
}
