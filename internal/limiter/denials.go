package limiter

import (
	"hash/maphash"
	"sync"
	"time"
)

// longestDenial is the longest time for which a denial is cached.
const longestDenial = time.Second

// denialCache caches a limiter's denials for a moment, so that a client that keeps retrying costs
// Redis next to nothing.
//
// A cached denial is certain unless units of its key are given back: no attempt shortens a wait. So
// this process calls forget after each of its changes that can give back units, and removes a key
// after it has counted units, which lengthen a wait. The cache also keeps out denials of requests
// that were sent before forget, because Redis may have denied these before the change. What other
// processes change goes unnoticed, for at most longestDenial.
type denialCache struct {
	capacity int
	seed     maphash.Seed

	mu        sync.Mutex
	denials   map[string]denial    // by key
	forgotten map[uint64]time.Time // when forget was last called, by slot of the key
}

// denialSlots is the number of slots that keys are hashed to, which bounds the memory for calls of
// forget. A call also keeps out denials of other keys in the slot, if their requests are in flight.
const denialSlots = 256

// A denial is the reply to an attempt that was denied. It is repeated only for the same units under
// the same limits.
type denial struct {
	units  int64
	limits string // as script arguments

	at      int64   // in units of the clock
	rows    []int64 // for each limit: used, retry after in ms, reset after in ms
	replied time.Time
	until   time.Time // when the wait, or longestDenial, is over
}

func newDenialCache(capacity int) *denialCache {
	return &denialCache{capacity: capacity, seed: maphash.MakeSeed(), denials: map[string]denial{}, forgotten: map[uint64]time.Time{}}
}

// lookup returns the denial of an earlier request for the same units under the same limits, if such
// a request is known to be denied now.
func (c *denialCache) lookup(key string, units int64, limits string, now time.Time) (d denial, denied bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, found := c.denials[key]
	if found && !now.Before(d.until) {
		delete(c.denials, key)
		found = false
	}
	return d, found && d.units == units && d.limits == limits
}

// remember stores d, the denial of a request that was sent at the time sent or later. It sets the
// times of d.
func (c *denialCache) remember(key string, d denial, sent time.Time) {
	var wait int64 // in ms
	for i := 1; i < len(d.rows); i += 3 {
		wait = max(wait, d.rows[i])
	}
	d.replied, d.until = time.Now(), sent.Add(time.Duration(min(wait, longestDenial.Milliseconds()))*time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !sent.After(c.forgotten[c.slot(key)]) || !d.replied.Before(d.until) {
		return
	}
	if _, found := c.denials[key]; !found && len(c.denials) >= c.capacity {
		for other := range c.denials { // drop an arbitrary one
			delete(c.denials, other)
			break
		}
	}
	c.denials[key] = d
}

// changed removes key from the cache after a request that counted units, so that the wait can be
// longer now, or that failed, so that it may have changed anything. It does nothing if the cache is
// nil.
func (c *denialCache) changed(key string, counted int64, err error) {
	switch {
	case c == nil:
	case err != nil:
		c.forget(key)
	case counted > 0:
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.denials, key)
	}
}

// forget removes key from the cache. Denials of requests that were sent before forget are no longer
// stored. It does nothing if the cache is nil.
func (c *denialCache) forget(key string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.denials, key)
	c.forgotten[c.slot(key)] = time.Now()
}

func (c *denialCache) slot(key string) uint64 { return maphash.String(c.seed, key) % denialSlots }
