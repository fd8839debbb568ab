package inflight

import (
	"context"
	"time"

	"github.com/slidegate/slidegate/internal/limiter"
)

// Snapshot is the full state of an event, for diagnosis.
type Snapshot struct {
	Key    string    // the key in Redis
	At     time.Time // the time of the snapshot, in UTC, on the clock of the leases
	Used   int64     // units that are held
	Max    int64     // the Max of the limiter that Inspect was called on
	Token  int64     // the last token that was issued; 0 if none is known
	Leases []Held    // in order of Until
}

// Held is a lease that is held.
type Held struct {
	Holder string // Config.Holder of its process; empty if unknown
	Units  int64
	Token  int64
	Since  time.Time // when it was taken
	Until  time.Time // when it ends, unless it is renewed
}

// Inspect returns every lease of the event, for diagnosis. It writes nothing, and never asks the
// Fallback. Inspect returns the same errors as TryAcquireN, except ErrUncertain.
func (l *Limiter) Inspect(ctx context.Context, event string) (Snapshot, error) {
	if err := l.made().Check(ctx, limiter.Peek, event, 1); err != nil {
		return Snapshot{}, err
	}
	s, err := l.store.inspect(ctx, event)
	if err != nil {
		return Snapshot{}, err
	}
	s.Key, s.Max = l.base.Key(event), l.max
	return s, nil
}
