package inflight

import "context"

// Abandon forgets a lease, as a crashing process would.
func Abandon(l *Lease) {
	l.limiter.mu.Lock()
	defer l.limiter.mu.Unlock()
	delete(l.limiter.held, l)
}

// ReleaseAgain sends the release of a lease once more, as if it were late.
func ReleaseAgain(l *Lease) error {
	return l.limiter.store.release(context.Background(), l.event, []ref{l.state.ref})
}

// Waiting returns the number of events that callers wait for.
func Waiting(l *Limiter) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}
