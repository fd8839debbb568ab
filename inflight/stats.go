package inflight

// Stats counts what a Limiter holds in this process, over all events.
type Stats struct {
	Limiter  string // Config.Name
	Held     int64  // units of leases that are neither released nor lost
	Degraded int64  // how many of these the Fallback holds
	Waiting  int64  // callers in Acquire
}

// Stats returns what the limiter, and those derived from it by With, hold in this process. It does
// not ask Redis. Package otelgate exports it as metrics.
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
