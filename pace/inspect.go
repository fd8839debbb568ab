package pace

import (
	"context"
	"time"

	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/internal/memory"
	"github.com/slidegate/slidegate/window"
)

// Snapshot is the state of an event, for people.
type Snapshot struct {
	Event       string       // as the caller named it
	Key         string       // the key in Redis
	At          time.Time    // of the snapshot, in UTC, on the clock of the turns
	Newest      time.Time    // the newest turn that was ever booked, even if it was cancelled; zero if it is not known any more
	PausedUntil time.Time    // when the last pause ends or ended; zero if there was none
	Limits      []LimitState // in the order of Config.Limits
}

// LimitState is the turns that count under one limit.
type LimitState struct {
	Limit window.Limit
	Turns []window.Bucket // oldest first; those after Snapshot.At are still to come
}

// Inspect returns every turn that counts, for people. It writes nothing, and never asks the Fallback. Errors
// are as those of WaitN, but never ErrUncertain.
func (l *Limiter) Inspect(ctx context.Context, event string) (Snapshot, error) {
	if err := l.made().Check(ctx, engine.Peek, event, 1); err != nil {
		return Snapshot{}, err
	}
	s, err := l.store.inspect(ctx, event)
	if err != nil {
		return Snapshot{}, err
	}
	s.Event, s.Key = event, l.engine.Key(event)
	for i := range s.Limits {
		s.Limits[i].Limit = l.limits[i]
	}
	return s, nil
}

func (m *local) inspect(_ context.Context, event string) (s Snapshot, err error) {
	var e memory.Event[record]
	if err := m.Open(&e, event); err != nil {
		return s, err
	}
	defer e.Close()
	s.At, s.Limits = utc(e.Now), make([]LimitState, len(m.limits))
	r := e.Record
	if r == nil {
		return s, nil
	}
	s.Newest, s.PausedUntil = utc(r.floor), utc(r.end)
	for i, l := range m.limits {
		for _, b := range r.section(l.Per).buckets {
			if b.last+l.Per > max(e.Now, r.floor) {
				s.Limits[i].Turns = append(s.Limits[i].Turns, window.Bucket{Last: utc(b.last), Units: b.units})
			}
		}
	}
	return s, nil
}

// utc returns a time, or the zero time for 0.
func utc(ms int64) (t time.Time) {
	if ms > 0 {
		t = time.UnixMilli(ms).UTC()
	}
	return t
}
