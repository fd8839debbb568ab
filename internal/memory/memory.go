// Package memory stores a record for each event in this process's memory.
package memory

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/keys"
)

// Store stores records of type R. Events are spread over shards that have their own locks, so that
// calls for different events rarely wait for each other. A Store starts no goroutine: occasionally
// a call sweeps a few records in the next shard.
type Store[R any] struct {
	clock     clock.Clock
	begin     time.Time // when the store was created
	forgotten func(r *R, now int64) bool
	seed      maphash.Seed
	maxEvents atomic.Int64  // 0 means no bound
	events    atomic.Int64  // number of records
	next      atomic.Uint32 // the shard to sweep next
	sweepAt   atomic.Uint32 // the debt at which a call sweeps
	shards    [64]shard[R]
}

type shard[R any] struct {
	mu     sync.Mutex
	events map[string]*entry[R]
	order  []*entry[R] // the entries in events, in any order, for sweeping
	next   int         // index in order where the next sweep starts
	peak   int         // the most events since the map was created, because maps do not shrink
	debt   uint32      // grows with each call, until a call sweeps
	_      [64]byte    // keeps neighbours off the same cache line
}

type entry[R any] struct {
	record R
	event  string
	index  int // in order
}

// New returns an empty Store for at most maxEvents events; 0 means no bound. Later calls drop
// records for which forgotten returns true, because they have expired. If the clock comes from a
// configuration, it may step back to before a record expired. In this case, records are dropped
// only when the Store is full.
func New[R any](c clock.Clock, maxEvents int, forgotten func(r *R, now int64) bool) *Store[R] {
	s := &Store[R]{clock: c, begin: time.Now(), forgotten: forgotten, seed: maphash.MakeSeed()}
	s.Bound(maxEvents)
	s.sweepAt.Store(maxSweepAt)
	for i := range s.shards {
		s.shards[i].events = map[string]*entry[R]{}
	}
	return s
}

// Bound sets the maximum number of events; 0 means no bound.
func (s *Store[R]) Bound(maxEvents int) { s.maxEvents.Store(int64(maxEvents)) }

// Event gives access to the record of one event, which is locked from Open to Close.
type Event[R any] struct {
	Record *R // nil if there is none
	Now    int64
	name   string
	entry  *entry[R]
	shard  *shard[R]
	store  *Store[R]
}

// Open locks the shard of event, and sets e. Without a configured clock, it reads the time while it
// holds the lock. Otherwise a sweep at a later time could drop a record that still counts at e.Now.
func (s *Store[R]) Open(e *Event[R], event string) (err error) {
	if s.clock.Now != nil {
		if e.Now, err = s.clock.Read(); err != nil {
			return err
		}
	}
	if e.name, e.store = event, s; len(event) > keys.Longest {
		sum := sha512.Sum512([]byte(event))
		e.name = "~" + hex.EncodeToString(sum[:]) // longer than any event that stands for itself
	}
	e.shard = &s.shards[maphash.String(s.seed, e.name)%uint64(len(s.shards))]
	e.shard.mu.Lock()
	if s.clock.Now == nil {
		e.Now = s.clock.Unit(s.begin.Add(time.Since(s.begin)))
	}
	if e.entry = e.shard.events[e.name]; e.entry != nil {
		e.Record = &e.entry.record
	}
	return nil
}

// Add creates a record for the event. It returns false if the Store is full.
func (e *Event[R]) Add() bool {
	for {
		if !e.HasRoom() {
			return false
		}
		n, most := e.store.events.Load(), e.store.maxEvents.Load()
		if (most == 0 || n < most) && e.store.events.CompareAndSwap(n, n+1) {
			break // otherwise another call was faster
		}
	}
	s := e.shard
	e.entry = &entry[R]{event: strings.Clone(e.name), index: len(s.order)}
	s.events[e.entry.event], s.order = e.entry, append(s.order, e.entry)
	s.peak = max(s.peak, len(s.order))
	s.debt += addDebt
	e.Record = &e.entry.record
	return true
}

// HasRoom reports whether Add would succeed. If the Store is full, it sweeps shards until it has
// dropped a record or checked sweepSize records.
func (e *Event[R]) HasRoom() bool {
	s, checked := e.store, uint32(0)
	if most := s.maxEvents.Load(); most == 0 || s.events.Load() < most {
		return true
	}
	for range s.shards {
		next := &s.shards[s.next.Add(1)%uint32(len(s.shards))]
		if next != e.shard && !next.mu.TryLock() {
			continue
		}
		swept, dropped := s.sweep(next, e.Now)
		if next != e.shard {
			next.mu.Unlock()
		}
		if checked += swept; dropped > 0 || checked >= sweepSize {
			return dropped > 0
		}
	}
	return false
}

// Remove deletes the record, which must exist.
func (e *Event[R]) Remove() {
	e.shard.remove(e.entry)
	e.store.events.Add(-1)
	e.Record, e.entry = nil, nil
}

// Reset deletes the record of event, if there is one.
func (s *Store[R]) Reset(_ context.Context, event string) error {
	var e Event[R]
	if err := s.Open(&e, event); err != nil {
		return err
	}
	defer e.Close()
	if e.Record != nil {
		e.Remove()
	}
	return nil
}

// Sweeping is amortized. A sweep checks up to sweepSize records in a shard, and drops the expired
// ones. Each call adds callDebt, a 256th of maxSweepAt, to the debt of its shard. A call that adds
// a record also adds addDebt, a sixteenth of maxSweepAt. A call that raises the debt to sweepAt
// sweeps. The larger the share of expired records in the last sweep, the sooner the next sweep
// comes.
const (
	sweepSize  = 64
	callDebt   = 1
	addDebt    = 16
	maxSweepAt = 256
	minSweepAt = 16
)

// Close unlocks the shard. If the shard's debt is high enough, Close sweeps the next shard, unless
// another call has locked it.
func (e *Event[R]) Close() {
	s := e.store
	e.shard.debt += callDebt
	sweeps := e.shard.debt >= s.sweepAt.Load() && s.clock.Now == nil
	if sweeps {
		e.shard.debt = 0
	}
	e.shard.mu.Unlock()
	if !sweeps {
		return
	}
	next := &s.shards[s.next.Add(1)%uint32(len(s.shards))]
	if next.mu.TryLock() {
		checked, dropped := s.sweep(next, e.Now)
		next.mu.Unlock()
		if checked > 0 {
			s.sweepAt.Store(maxSweepAt - (maxSweepAt-minSweepAt)*dropped/checked)
		}
	}
}

// sweep checks up to sweepSize records in a shard, and drops the expired ones. It returns how
// many records it has checked and dropped.
func (s *Store[R]) sweep(of *shard[R], now int64) (checked, dropped uint32) {
	for most := min(sweepSize, len(of.order)); checked < uint32(most); checked++ {
		if of.next >= len(of.order) {
			of.next = 0
		}
		if e := of.order[of.next]; s.forgotten(&e.record, now) {
			of.remove(e)
			dropped++
		} else {
			of.next++
		}
	}
	s.events.Add(-int64(dropped))
	return checked, dropped
}

// remove deletes an entry. When a quarter of the peak is left, it copies the map and the slice,
// because neither of them releases memory otherwise.
func (s *shard[R]) remove(e *entry[R]) {
	last := len(s.order) - 1
	s.order[e.index], s.order[last].index = s.order[last], e.index
	s.order[last], s.order = nil, s.order[:last]
	delete(s.events, e.event)
	if s.peak > 64 && last < s.peak/4 {
		s.events, s.order, s.peak = make(map[string]*entry[R], last), slices.Clone(s.order), last
		for _, e := range s.order {
			s.events[e.event] = e
		}
	}
}
