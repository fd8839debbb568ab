// Package denials caches denials for a moment, so that a client that keeps retrying costs Redis
// next to nothing.
//
// A cached denial is certain unless units of its key are given back: no attempt shortens a wait. So
// this process calls Forget after each of its changes that can give back units, and Remove after it
// has counted units, which lengthen a wait. Forget also keeps out denials of requests that were sent
// before it, because Redis may have denied these before the change. What other processes change goes
// unnoticed, for at most longest.
package denials

import (
	"hash/maphash"
	"sync"
	"time"
)

// longest is the longest time for which a denial is cached.
const longest = time.Second

// Cache caches a limiter's denials. Forget and Remove do nothing if the Cache is nil.
type Cache struct {
	capacity int
	seed     maphash.Seed

	mu        sync.Mutex
	denials   map[string]denial    // by key
	forgotten map[uint64]time.Time // when Forget was last called, by slot of the key
}

// slots is the number of slots that keys are hashed to, which bounds the memory for calls of
// Forget. A call also keeps out denials of other keys in the slot, if their requests are in flight.
const slots = 256

type denial struct {
	request Request
	reply   Reply
	replied time.Time
	until   time.Time // when the wait, or the longest time, is over
}

// Request describes an attempt. A denial is repeated only for an equal Request.
type Request struct {
	Units  int64
	Limits string // as script arguments
}

// Reply is the reply to a request, as integers in the units of the scripts.
type Reply struct {
	At   int64
	Rows []int64 // for each limit: used, retry after in ms, reset after in ms
}

// New returns a Cache for at most capacity denials.
func New(capacity int) *Cache {
	return &Cache{capacity: capacity, seed: maphash.MakeSeed(), denials: map[string]denial{}, forgotten: map[uint64]time.Time{}}
}

// Lookup reports whether request is known to be denied now. If it is, Lookup returns the reply to an
// earlier request that was denied, and the age of that reply.
func (c *Cache) Lookup(key string, request Request, now time.Time) (reply Reply, age time.Duration, denied bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, found := c.denials[key]
	if !found || d.request != request {
		return reply, 0, false
	}
	if !now.Before(d.until) {
		delete(c.denials, key)
		return reply, 0, false
	}
	return d.reply, max(0, now.Sub(d.replied)), true
}

// Remember stores the reply to a request that was denied, and that was sent at the time sent or
// later.
func (c *Cache) Remember(key string, request Request, sent time.Time, reply Reply) {
	var wait int64 // in ms
	for i := 1; i < len(reply.Rows); i += 3 {
		wait = max(wait, reply.Rows[i])
	}
	now, until := time.Now(), sent.Add(time.Duration(min(wait, longest.Milliseconds()))*time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	if sent.After(c.forgotten[c.slot(key)]) && now.Before(until) {
		c.makeRoom(key)
		c.denials[key] = denial{request, reply, now, until}
	}
}

// makeRoom drops an arbitrary denial if the cache is full and does not contain key.
func (c *Cache) makeRoom(key string) {
	if _, found := c.denials[key]; found || len(c.denials) < c.capacity {
		return
	}
	for other := range c.denials {
		delete(c.denials, other)
		return
	}
}

// Remove removes key from the cache, because units were counted, so that the wait can be longer now.
func (c *Cache) Remove(key string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.denials, key)
}

// Forget removes key from the cache. Denials of requests that were sent before Forget are no longer
// stored.
func (c *Cache) Forget(key string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.denials, key)
	c.forgotten[c.slot(key)] = time.Now()
}

func (c *Cache) slot(key string) uint64 { return maphash.String(c.seed, key) % slots }
