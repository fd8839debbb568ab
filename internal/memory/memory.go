// Package memory holds a record for each event in this process's memory.
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

// Store holds records of type R. Events are spread over shards, each with its own lock, so that
// callers on different events do not wait for each other. It starts no goroutine: occasionally a
// call sweeps a few records of the next shard.
type Store[R any] struct {
	clock     clock.Clock
	begin     time.Time // when the store was created
	beginNano int64     // the same in ns since 1970
	forgotten func(r *R, now int64) bool
	seed      maphash.Seed
	maxEvents atomic.Int64  // 0 means no bound
	events    atomic.Int64  // the number of records
	next      atomic.Uint32 // the shard to sweep next
	sweepAt   atomic.Uint32 // the debt of a shard at which a call sweeps
	shards    [64]shard[R]
}

type shard[R any] struct {
	mu     sync.Mutex
	events map[string]*entry[R]
	order  []*entry[R] // all entries of events, in any order, for the sweep
	next   int         // index in order where the next sweep starts
	peak   int         // the most events since the map was created, because maps do not shrink
	debt   uint32      // grows with each call, until one sweeps
	_      [64]byte    // keeps neighbours off the same cache line
}

type entry[R any] struct {
	record R
	event  string
	index  int // in order
}

// New returns an empty store for at most maxEvents; 0 means no bound. Later calls drop the records
// that forgotten reports as expired. If the clock comes from a configuration, it may step back to
// before a record expired, so they do that only if the store is full.
func New[R any](c clock.Clock, maxEvents int, forgotten func(r *R, now int64) bool) *Store[R] {
	s := &Store[R]{clock: c, begin: time.Now(), forgotten: forgotten, seed: maphash.MakeSeed()}
	s.beginNano = s.begin.UnixNano()
	s.Bound(maxEvents)
	s.sweepAt.Store(maxSweepAt)
	for i := range s.shards {
		s.shards[i].events = map[string]*entry[R]{}
	}
	return s
}

// Bound sets the maximum number of events; 0 means no bound.
func (s *Store[R]) Bound(maxEvents int) { s.maxEvents.Store(int64(maxEvents)) }

// Event is the record of one event, locked from Open to Close.
type Event[R any] struct {
	Record *R // nil if there is none
	Now    int64
	name   string
	entry  *entry[R]
	shard  *shard[R]
	store  *Store[R]
}

// Open locks the shard of the event. It reads the clock under the lock. Otherwise a sweep at a
// later time could drop a record that still counts at this one.
func (s *Store[R]) Open(e *Event[R], event string) (err error) {
	if s.clock.Now != nil {
		if e.Now, err = s.clock.Read(); err != nil {
			return err
		}
	}
	e.name, e.store = storedName(event), s
	e.shard = &s.shards[maphash.String(s.seed, e.name)%uint64(len(s.shards))]
	e.shard.mu.Lock()
	if s.clock.Now == nil {
		e.Now = (s.beginNano + int64(time.Since(s.begin))) / int64(s.clock.Tick)
	}
	if e.entry = e.shard.events[e.name]; e.entry != nil {
		e.Record = &e.entry.record
	}
	return nil
}

// storedName returns the event, or a hash of a long one.
func storedName(event string) string {
	if len(event) <= keys.Longest {
		return event
	}
	sum := sha512.Sum512([]byte(event))
	return "~" + hex.EncodeToString(sum[:]) // longer than any event that stands for itself
}

// Add creates a record for the event. It returns false if there is no room.
func (e *Event[R]) Add() bool {
	if !e.store.reserve(e.shard, e.Now) {
		return false
	}
	s := e.shard
	e.entry = &entry[R]{event: strings.Clone(e.name), index: len(s.order)}
	s.events[e.entry.event], s.order = e.entry, append(s.order, e.entry)
	s.peak = max(s.peak, len(s.order))
	s.debt += addDebt
	e.Record = &e.entry.record
	return true
}

// reserve counts one more event. If the store is full, it first drops expired records. It returns
// false if there are none.
func (s *Store[R]) reserve(own *shard[R], now int64) bool {
	for {
		n, most := s.events.Load(), s.maxEvents.Load()
		if most > 0 && n >= most {
			if !s.makeRoom(own, now) {
				return false
			}
		} else if s.events.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// makeRoom sweeps the next shards, and the locked one, until it has dropped a record or checked
// sweepSize of them.
func (s *Store[R]) makeRoom(own *shard[R], now int64) bool {
	checked := uint32(0)
	for range s.shards {
		next := &s.shards[s.next.Add(1)%uint32(len(s.shards))]
		if next != own && !next.mu.TryLock() {
			continue
		}
		swept, dropped := s.sweepShard(next, now)
		if next != own {
			next.mu.Unlock()
		}
		if checked += swept; dropped > 0 || checked >= sweepSize {
			return dropped > 0
		}
	}
	return false
}

// HasRoom reports whether Add would succeed.
func (e *Event[R]) HasRoom() bool {
	most := e.store.maxEvents.Load()
	return most == 0 || e.store.events.Load() < most || e.store.makeRoom(e.shard, e.Now)
}

// Remove drops the record.
func (e *Event[R]) Remove() {
	e.shard.remove(e.entry)
	e.store.events.Add(-1)
	e.Record, e.entry = nil, nil
}

// Reset drops the record of the event, if there is one.
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

// Sweeping is amortised. A sweep checks up to sweepSize records of a shard, and drops the expired
// ones. Each call adds callDebt to the debt of its shard: a 256th of maxSweepAt. A call that adds a
// record also adds addDebt: a sixteenth. The call that reaches sweepAt sweeps. The larger the share
// of expired records in the last sweep, the sooner the next one comes.
const (
	sweepSize  = 64
	callDebt   = 1
	addDebt    = 16
	maxSweepAt = 256
	minSweepAt = 16
)

// Close unlocks the shard. Once the debt of the shard is high enough, it sweeps the next shard.
func (e *Event[R]) Close() {
	e.shard.debt += callDebt
	sweeps := e.shard.debt >= e.store.sweepAt.Load() && e.store.clock.Now == nil
	if sweeps {
		e.shard.debt = 0
	}
	e.shard.mu.Unlock()
	if sweeps {
		e.store.sweep(e.Now)
	}
}

// sweep sweeps the next shard, unless another call is using it.
func (s *Store[R]) sweep(now int64) {
	next := &s.shards[s.next.Add(1)%uint32(len(s.shards))]
	if next.mu.TryLock() {
		checked, dropped := s.sweepShard(next, now)
		next.mu.Unlock()
		if checked > 0 {
			s.sweepAt.Store(maxSweepAt - (maxSweepAt-minSweepAt)*dropped/checked)
		}
	}
}

// sweepShard drops some expired records. It returns how many it checked, and how many it dropped.
func (s *Store[R]) sweepShard(of *shard[R], now int64) (checked, dropped uint32) {
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

func (s *shard[R]) remove(e *entry[R]) {
	last := len(s.order) - 1
	s.order[e.index], s.order[last].index = s.order[last], e.index
	s.order[last], s.order = nil, s.order[:last]
	delete(s.events, e.event)
	if s.peak > 64 && last < s.peak/4 {
		s.shrink()
	}
}

// shrink copies the map and the list, because neither releases memory by itself.
func (s *shard[R]) shrink() {
	s.events, s.order, s.peak = make(map[string]*entry[R], len(s.order)), slices.Clone(s.order), len(s.order)
	for _, e := range s.order {
		s.events[e.event] = e
	}
}
