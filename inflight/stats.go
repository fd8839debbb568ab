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
	s.Waiting = l.lines.waiting()
	for _, lease := range l.keeper.all() {
		r, degraded := lease.state()
		if s.Held += r.n; degraded {
			s.Degraded += r.n
		}
	}
	return s
}
