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

// Store holds records of type R. Events are spread over shards, each with a lock, so that callers
// on different events do not queue. There is no goroutine: now and then a call sweeps a few events
// of the next shard.
type Store[R any] struct {
	clock     clock.Clock
	begin     time.Time // when the store was made
	beginNano int64     // the same in ns since 1970
	forgotten func(r *R, now int64) bool
	seed      maphash.Seed
	maxEvents atomic.Int64  // 0: no bound
	events    atomic.Int64  // how many have a record
	next      atomic.Uint32 // the shard to sweep next
	due       atomic.Uint32 // what calls of a shard owe when it is their turn to sweep one
	shards    [64]shard[R]
}

type shard[R any] struct {
	mu     sync.Mutex
	events map[string]*entry[R]
	order  []*entry[R] // all of events, in any order, for the sweep
	hand   int         // where in order the sweep goes on
	peak   int         // most events since the map was made: maps do not shrink
	owed   uint32      // what calls since they last swept owe
	_      [64]byte    // keeps neighbours off one cache line
}

type entry[R any] struct {
	record R
	event  string
	place  int // its index in order
}

// New returns an empty store for at most maxEvents; 0 is no bound. It drops records that are
// forgotten, in the course of other calls. By the clock of a configuration, which may step back to
// when a record was not yet forgotten, it does so only if it is full.
func New[R any](c clock.Clock, maxEvents int, forgotten func(r *R, now int64) bool) *Store[R] {
	s := &Store[R]{clock: c, begin: time.Now(), forgotten: forgotten, seed: maphash.MakeSeed()}
	s.beginNano = s.begin.UnixNano()
	s.Bound(maxEvents)
	s.due.Store(seldom)
	for i := range s.shards {
		s.shards[i].events = map[string]*entry[R]{}
	}
	return s
}

// Bound sets how many events there may be; 0 is no bound.
func (s *Store[R]) Bound(maxEvents int) { s.maxEvents.Store(int64(maxEvents)) }

// Event is an event that nobody else sees until it is closed.
type Event[R any] struct {
	Record *R // nil if there is none
	Now    int64
	name   string
	entry  *entry[R]
	shard  *shard[R]
	store  *Store[R]
}

// Open locks the shard of the event. The clock is read under the lock: else a sweep could go by a
// later time, and drop what counts at this one.
func (s *Store[R]) Open(e *Event[R], event string) (err error) {
	if s.clock.Now != nil {
		if e.Now, err = s.clock.Read(); err != nil {
			return err
		}
	}
	e.name, e.store = held(event), s
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

// held is what stands for an event: a hash of one that is long.
func held(event string) string {
	if len(event) <= keys.Longest {
		return event
	}
	sum := sha512.Sum512([]byte(event))
	return "~" + hex.EncodeToString(sum[:]) // longer than any event that stands for itself
}

// Add gives the event a record. It reports false if there is no room.
func (e *Event[R]) Add() bool {
	if !e.store.takePlace(e.shard, e.Now) {
		return false
	}
	s := e.shard
	e.entry = &entry[R]{event: strings.Clone(e.name), place: len(s.order)}
	s.events[e.entry.event], s.order = e.entry, append(s.order, e.entry)
	s.peak = max(s.peak, len(s.order))
	s.owed += addOwes
	e.Record = &e.entry.record
	return true
}

// takePlace counts another event. If there is no place, it first drops events that are forgotten.
func (s *Store[R]) takePlace(own *shard[R], now int64) bool {
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

// makeRoom looks at some events of the next shards, and of the one that is locked, until some were
// dropped.
func (s *Store[R]) makeRoom(own *shard[R], now int64) bool {
	looks := uint32(0)
	for range s.shards {
		next := &s.shards[s.next.Add(1)%uint32(len(s.shards))]
		if next != own && !next.mu.TryLock() {
			continue
		}
		looked, dropped := s.sweepShard(next, now)
		if next != own {
			next.mu.Unlock()
		}
		if looks += looked; dropped > 0 || looks >= sweepSome {
			return dropped > 0
		}
	}
	return false
}

// HasRoom reports whether Add would find room.
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

// A sweep looks at some records, and drops those that are forgotten. Who adds a record owes a
// sixteenth of a sweep, any other call a 256th; the more was dropped of what the last sweep saw,
// the less has to be owed for the next.
const (
	sweepSome = 64
	callOwes  = 1
	addOwes   = 16
	seldom    = 256
	often     = 16
)

// Close unlocks the shard. Once enough is owed it sweeps the next shard that nobody is using.
func (e *Event[R]) Close() {
	e.shard.owed += callOwes
	due := e.shard.owed >= e.store.due.Load() && e.store.clock.Now == nil
	if due {
		e.shard.owed = 0
	}
	e.shard.mu.Unlock()
	if due {
		e.store.sweep(e.Now)
	}
}

// sweep sweeps the next shard, unless somebody uses it.
func (s *Store[R]) sweep(now int64) {
	next := &s.shards[s.next.Add(1)%uint32(len(s.shards))]
	if next.mu.TryLock() {
		looks, dropped := s.sweepShard(next, now)
		next.mu.Unlock()
		if looks > 0 {
			s.due.Store(seldom - (seldom-often)*dropped/looks)
		}
	}
}

// sweepShard drops some records that are forgotten. It returns at how many it looked, and how many
// it dropped.
func (s *Store[R]) sweepShard(of *shard[R], now int64) (looks, dropped uint32) {
	for most := min(sweepSome, len(of.order)); looks < uint32(most); looks++ {
		if of.hand >= len(of.order) {
			of.hand = 0
		}
		if e := of.order[of.hand]; s.forgotten(&e.record, now) {
			of.remove(e)
			dropped++
		} else {
			of.hand++
		}
	}
	s.events.Add(-int64(dropped))
	return looks, dropped
}

func (s *shard[R]) remove(e *entry[R]) {
	last := len(s.order) - 1
	s.order[e.place], s.order[last].place = s.order[last], e.place
	s.order[last], s.order = nil, s.order[:last]
	delete(s.events, e.event)
	if s.peak > 64 && last < s.peak/4 {
		s.shrink()
	}
}

// shrink makes the map and the list anew, since neither gives back memory by itself.
func (s *shard[R]) shrink() {
	s.events, s.order, s.peak = make(map[string]*entry[R], len(s.order)), slices.Clone(s.order), len(s.order)
	for _, e := range s.order {
		s.events[e.event] = e
	}
}
