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

// Store holds records of type R. Events are spread over shards, each with a lock, so that callers on different events do
// not queue. There is no goroutine: now and then a call sweeps a few events of the next shard.
type Store[R any] struct {
	clock     clock.Clock
	begin     time.Time // when it was made; the clock is what passed since on the monotonic clock
	forgotten func(r *R, now int64) bool
	seed      maphash.Seed
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
	sweeps uint32      // of this shard so far
	_      [64]byte    // keeps neighbours off one cache line
}

type entry[R any] struct {
	record R
	event  string
	place  int    // its index in order
	idle   uint32 // the sweep that found it forgotten, if nobody asked for it since; else 0
}

// New returns an empty store. It drops records that are forgotten, in the course of other calls; but not by the clock of a
// configuration, which may step back to when a record was not yet forgotten.
func New[R any](c clock.Clock, forgotten func(r *R, now int64) bool) *Store[R] {
	s := &Store[R]{clock: c, begin: time.Now(), forgotten: forgotten, seed: maphash.MakeSeed()}
	s.due.Store(seldom)
	for i := range s.shards {
		s.shards[i].events = map[string]*entry[R]{}
	}
	return s
}

// Event is an event that nobody else sees until it is closed.
type Event[R any] struct {
	Record *R // nil if there is none
	Now    int64
	name   string
	entry  *entry[R]
	shard  *shard[R]
	store  *Store[R]
}

// Open locks the shard of the event. The clock is read under the lock: else a sweep could go by a later time, and drop what
// counts at this one.
func (s *Store[R]) Open(event string) (e Event[R], err error) {
	if s.clock.Now != nil {
		if e.Now, err = s.clock.Read(); err != nil {
			return e, err
		}
	}
	e.name, e.store = held(event), s
	e.shard = &s.shards[maphash.String(s.seed, e.name)%uint64(len(s.shards))]
	e.shard.mu.Lock()
	if s.clock.Now == nil {
		e.Now = s.clock.Unit(s.begin.Add(time.Since(s.begin)))
	}
	if e.entry = e.shard.events[e.name]; e.entry != nil {
		e.entry.idle = 0
		e.Record = &e.entry.record
	}
	return e, nil
}

// held is what stands for an event: a hash of one that is long.
func held(event string) string {
	if len(event) <= keys.Longest {
		return event
	}
	sum := sha512.Sum512([]byte(event))
	return "~" + hex.EncodeToString(sum[:]) // longer than any event that stands for itself
}

// Add gives the event a record.
func (e *Event[R]) Add() *R {
	s := e.shard
	e.entry = &entry[R]{event: strings.Clone(e.name), place: len(s.order)}
	s.events[e.entry.event], s.order = e.entry, append(s.order, e.entry)
	s.peak = max(s.peak, len(s.order))
	s.owed += addOwes
	e.Record = &e.entry.record
	return e.Record
}

// Remove drops the record.
func (e *Event[R]) Remove() {
	e.shard.remove(e.entry)
	e.Record, e.entry = nil, nil
}

// Reset drops the record of the event, if there is one.
func (s *Store[R]) Reset(_ context.Context, event string) error {
	e, err := s.Open(event)
	if err != nil {
		return err
	}
	defer e.Close()
	if e.Record != nil {
		e.Remove()
	}
	return nil
}

// A sweep looks at some records. One that is forgotten goes when it is looked at the second time. Who adds a record owes a sixteenth
// of a sweep, any other call a 256th; the more was forgotten of what the last sweep saw, the less has to be owed for the next.
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

func (s *Store[R]) sweep(now int64) {
	next := &s.shards[s.next.Add(1)%uint32(len(s.shards))]
	if next.mu.TryLock() {
		looks, waste := next.sweep(s.forgotten, now)
		next.mu.Unlock()
		if looks > 0 {
			s.due.Store(seldom - (seldom-often)*waste/looks)
		}
	}
}

// sweep removes some records that are forgotten and that nobody asked for since the last sweep: a clock that jumped ahead
// for a moment frees nothing by being swept. It returns at how many it looked, and how many of them were forgotten.
func (s *shard[R]) sweep(forgotten func(*R, int64) bool, now int64) (looks, waste uint32) {
	s.sweeps++
	for most := min(sweepSome, len(s.order)); looks < uint32(most); looks++ {
		if s.hand >= len(s.order) {
			s.hand = 0
		}
		entry := s.order[s.hand]
		switch {
		case !forgotten(&entry.record, now):
			entry.idle = 0
			s.hand++
		case entry.idle == 0 || entry.idle == s.sweeps:
			entry.idle = s.sweeps
			waste++
			s.hand++
		default:
			s.remove(entry)
			waste++
		}
	}
	return looks, waste
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
