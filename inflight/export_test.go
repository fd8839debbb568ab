package inflight

import "context"

// Abandon forgets a lease, as a process that crashes does.
func Abandon(l *Lease) { l.limiter.keeper.remove(l) }

// ReleaseAgain sends the release of a lease once more, as if it came late.
func ReleaseAgain(l *Lease) error {
	return l.limiter.store.release(context.Background(), l.event, []ref{l.ref})
}

// Waiting returns of how many events callers wait.
func Waiting(l *Limiter) int {
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	return len(l.lines.of)
}
