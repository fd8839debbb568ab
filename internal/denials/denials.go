// Package denials caches denials, so that a client that keeps retrying costs Redis nothing.
//
// A cached denial is repeated only while nothing can have changed the key. Before a request is
// sent, Lookup gets the key's value by a cached GET, so Redis notifies the client of every change
// to the key. If the request is denied, Remember stores the denial together with that value. Later,
// Lookup repeats the denial until the wait is over, as long as the client still holds the same copy
// of the value.
//
// Lookup must get the value before the request is sent: otherwise a Reset between the request and
// the GET would go unnoticed. And the copy must be the same, not just equal: after a Reset and an
// allowed attempt within one millisecond, the key can contain the same bytes again.
package denials

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// ErrLeft is the error of a Get whose caller has left. It is wrapped together with the error of
// ctx.
var ErrLeft = errors.New("nothing was sent")

// Get returns the value of key, or "" if the key does not exist. It sends a GET, whose reply the
// client caches for at most ttl. If hit is true, the value came from the client's cache and not
// from Redis. An error that does not match ErrLeft means that Redis cannot answer.
type Get func(ctx context.Context, key string, timeout, ttl time.Duration) (value string, hit bool, err error)

// Cache caches a limiter's denials.
type Cache struct {
	capacity  int
	get       Get
	reportOff func(context.Context)

	tracks atomic.Bool  // the client is known to cache what it gets
	misses atomic.Int32 // how many values the client failed to cache
	off    atomic.Bool  // the denial cache is off, because the client does not cache values

	mu      sync.Mutex
	denials map[string]*denial // by key
}

// denial is the cached denial of a key. Its reply never changes: a newer reply replaces the denial.
type denial struct {
	request Request
	reply   Reply
	replied time.Time
	until   time.Time // when the wait is over
	value   string    // of the key, before the request was sent; "" if unknown, so that the denial is not repeated

	confirmed atomic.Int64 // when the last fetch that confirmed the denial started, in ns after replied

	mu    sync.Mutex
	fetch *fetch // the fetch in flight; nil if there is none
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

// lease is how long all callers may use the result of a fetch. It is short compared with the round
// trip that a notification from Redis takes.
const lease = 100 * time.Microsecond

// maxMisses is how many values the client may fail to cache before the denial cache switches itself
// off.
const maxMisses = 3

// New returns a Cache for at most capacity denials. If the client turns out not to cache values,
// the Cache switches itself off and calls reportOff once.
func New(capacity int, get Get, reportOff func(context.Context)) *Cache {
	return &Cache{capacity: capacity, get: get, reportOff: reportOff, denials: map[string]*denial{}}
}

// Result is the result of a Lookup.
type Result struct {
	Denied bool          // the request is denied; do not send it
	Reply  Reply         // if Denied: the reply to the earlier request that was denied
	Age    time.Duration // of Reply

	key     string
	request Request
	value   string // before the request is sent
}

// Lookup reports whether request is known to be denied. If not, send the request, and then call
// Remember or Forget. Lookup takes no longer than timeout, unless timeout is negative.
func (c *Cache) Lookup(ctx context.Context, key string, request Request, timeout time.Duration) (Result, error) {
	result, d := Result{key: key, request: request}, c.find(key)
	now := time.Now()
	if c.off.Load() || d == nil || d.request != request || !now.Before(d.until) {
		return result, nil
	}
	if at := d.confirmed.Load(); at != 0 && now.Sub(d.replied) < time.Duration(at)+lease {
		return d.repeat(result, now), nil
	}
	l := d.share(ctx, func() fetch { return c.fetch(ctx, key, timeout, d.until.Sub(now)) })
	if l.err != nil {
		c.Forget(key)
		return result, ownError(ctx, l.err)
	}
	if !l.hit || !sameCopy(l.value, d.value) {
		result.value = l.value
		return result, nil
	}
	d.confirmed.Store(int64(now.Sub(d.replied)))
	return d.repeat(result, now), nil
}

func (d *denial) repeat(result Result, now time.Time) Result {
	result.Denied, result.Reply, result.Age = true, d.reply, now.Sub(d.replied)
	return result
}

// Remember stores the reply to a request that was sent, at the time sent, after a Lookup. It stores
// the reply to an allowed request only if the request used the last units and the key is already in
// the cache. The next Lookup of that key then gets the key's value.
func (c *Cache) Remember(result Result, sent time.Time, allowed bool, reply Reply) {
	d := &denial{request: result.request, reply: reply, replied: time.Now(), value: result.value}
	for i := 1; i < len(reply.Rows); i += 3 {
		d.until = later(d.until, sent.Add(time.Duration(min(reply.Rows[i], longest))*time.Millisecond))
	}
	if allowed {
		d.value = ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if allowed && c.denials[result.key] == nil || !d.until.After(d.replied) {
		delete(c.denials, result.key)
		return
	}
	c.makeRoom(result.key)
	c.denials[result.key] = d
}

// longest is the longest time in ms for which a denial is cached: a year.
const longest = 365 * 24 * 3600 * 1000

// makeRoom drops an arbitrary denial if the cache is full and does not contain key.
func (c *Cache) makeRoom(key string) {
	if c.denials[key] != nil || len(c.denials) < c.capacity {
		return
	}
	for other := range c.denials {
		delete(c.denials, other)
		return
	}
}

// Forget removes key from the cache.
func (c *Cache) Forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.denials, key)
}

func (c *Cache) find(key string) *denial {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.denials[key]
}

// A fetch is a cached GET that is shared by all callers that arrive while it is in flight.
type fetch struct {
	done  chan struct{}
	value string
	hit   bool
	err   error
}

// share calls get for one caller at a time. Callers that arrive during that call wait for its
// result, but for at most half of the time until their deadlines, so that they can still send their
// requests.
func (d *denial) share(ctx context.Context, get func() fetch) fetch {
	d.mu.Lock()
	if l := d.fetch; l != nil {
		d.mu.Unlock()
		return l.await(ctx)
	}
	l := &fetch{done: make(chan struct{}), err: ErrLeft} // the error for the other callers if get panics
	d.fetch = l
	d.mu.Unlock()
	defer d.finish(l)
	found := get()
	l.value, l.hit, l.err = found.value, found.hit, found.err
	return found
}

// await waits for the result of another caller's fetch. If the fetch failed because of that
// caller's deadline, await returns ErrLeft, as if that caller had left.
func (l *fetch) await(ctx context.Context) fetch {
	var over <-chan time.Time
	if deadline, dated := ctx.Deadline(); dated {
		timer := time.NewTimer(time.Until(deadline) / 2)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-l.done:
		if !errors.Is(l.err, context.DeadlineExceeded) {
			return *l
		}
	case <-over:
	case <-ctx.Done():
	}
	return fetch{err: ErrLeft}
}

func (d *denial) finish(l *fetch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fetch = nil
	close(l.done)
}

// fetch gets the value of key. Until the client is known to cache values, fetch sends a second GET
// to find out.
func (c *Cache) fetch(ctx context.Context, key string, timeout, ttl time.Duration) (l fetch) {
	began := time.Now()
	l.value, l.hit, l.err = c.get(ctx, key, timeout, ttl)
	if l.err != nil || l.hit || l.value == "" || c.tracks.Load() {
		return l
	}
	if timeout >= 0 {
		timeout = max(1, timeout-time.Since(began))
	}
	again, hit, err := c.get(ctx, key, timeout, ttl)
	if hit {
		c.tracks.Store(true)
	} else if err == nil && again == l.value && c.misses.Add(1) >= maxMisses && c.off.CompareAndSwap(false, true) {
		c.reportOff(ctx)
	}
	return l
}

// ownError translates the error of a shared fetch into the error that one of its callers should
// get.
func ownError(ctx context.Context, err error) error {
	switch {
	case !errors.Is(err, ErrLeft):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrLeft, ctx.Err())
	}
	return nil // it was another caller that left
}

// sameCopy reports whether a and b are the same copy in memory, and not empty. If so, the client
// has received no notification of a change between the two reads.
func sameCopy(a, b string) bool {
	return a != "" && b != "" && unsafe.StringData(a) == unsafe.StringData(b)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
