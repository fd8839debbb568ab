// Package denials remembers denials, so that a client that keeps retrying costs Redis nothing.
//
// A remembered denial is repeated only while nothing can have changed the key. Before a request is
// sent, Lookup gets the value of the key by a cached GET, so Redis notifies the client of every
// change. If the request is denied, Remember keeps the denial with that value. Later, Lookup
// repeats the denial until the wait is over, as long as the client still holds the same copy of the
// value.
//
// Lookup must get the value before the request is sent, because a Reset in between would go
// unnoticed. And it must be the same copy: after a Reset and an allowed attempt in the same
// millisecond, the key can have the same bytes again.
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

// ErrLeft is the error of a Get whose caller left, joined with the error of ctx.
var ErrLeft = errors.New("nothing was sent")

// Get returns the value of a key, or an empty string, by a GET whose reply the client caches for at
// most ttl. Hit reports that the client had cached the value, and did not ask Redis. An error that
// is not ErrLeft means that Redis cannot answer.
type Get func(ctx context.Context, key string, timeout, ttl time.Duration) (value string, hit bool, err error)

// Cache remembers the denials of a limiter.
type Cache struct {
	capacity  int
	get       Get
	reportOff func(context.Context)

	tracks atomic.Bool  // the client is known to cache what it gets
	misses atomic.Int32 // how often the client did not cache a value
	off    atomic.Bool  // the client never caches, so the cache is off

	mu      sync.Mutex
	denials map[string]*denial // by key
}

// denial holds what is known about a key. It is never changed, only replaced.
type denial struct {
	request Request
	reply   Reply
	replied time.Time
	until   time.Time // when the wait is over
	value   string    // of the key, before the request was sent; if it is empty, it is unknown, and the denial is not repeated

	confirmed atomic.Int64 // when the last fetch that confirmed the denial started, in ns after replied

	mu    sync.Mutex
	fetch *fetch // in flight; nil if there is none
}

// Request holds what an attempt asks for. A denial is repeated only for the same request.
type Request struct {
	Units  int64
	Limits string // as arguments of the script
}

// Reply is the reply to a request, in the integers of the scripts.
type Reply struct {
	At   int64
	Rows []int64 // for each limit: used, retry after in ms, reset after in ms
}

// lease is how long all callers may use the result of a fetch. It is short compared with the round
// trip in which Redis notifies of a change.
const lease = 100 * time.Microsecond

// maxMisses is how many values the client may fail to cache before the denial cache switches itself
// off.
const maxMisses = 3

// New returns a Cache for at most capacity denials. It calls reportOff once if the client does not
// cache what it gets.
func New(capacity int, get Get, reportOff func(context.Context)) *Cache {
	return &Cache{capacity: capacity, get: get, reportOff: reportOff, denials: map[string]*denial{}}
}

// Result is the result of a Lookup.
type Result struct {
	Denied bool          // the request is denied; do not send it
	Reply  Reply         // if Denied: the reply to the request that was denied before
	Age    time.Duration // of Reply

	key     string
	request Request
	value   string // before the request is sent
}

// Lookup reports whether a request is known to be denied. Otherwise send the request, and then call
// Remember or Forget. Lookup takes no longer than timeout, unless that is below 0.
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

// Remember keeps the reply to a request that was sent after a Lookup, at the time sent. It keeps an
// allowed reply only if it used the last units of a known key. The next Lookup of that key then
// gets its value.
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

// longest is the longest time in ms that a denial is remembered: a year.
const longest = 365 * 24 * 3600 * 1000

// makeRoom drops an arbitrary other denial if the cache is full.
func (c *Cache) makeRoom(key string) {
	if c.denials[key] != nil || len(c.denials) < c.capacity {
		return
	}
	for other := range c.denials {
		delete(c.denials, other)
		return
	}
}

// Forget drops what is known about a key.
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

// A fetch is one cached GET of a key, for all callers that arrive in the meantime.
type fetch struct {
	done  chan struct{}
	value string
	hit   bool
	err   error
}

// share calls get for one caller at a time. Callers that arrive in the meantime wait for its
// result, for at most half of the time until their deadline, so that they can still ask Redis
// themselves.
func (d *denial) share(ctx context.Context, get func() fetch) fetch {
	d.mu.Lock()
	if l := d.fetch; l != nil {
		d.mu.Unlock()
		return l.await(ctx)
	}
	l := &fetch{done: make(chan struct{}), err: ErrLeft} // the error if get panics
	d.fetch = l
	d.mu.Unlock()
	defer d.finish(l)
	found := get()
	l.value, l.hit, l.err = found.value, found.hit, found.err
	return found
}

// await waits for the result of another caller's fetch. An error that comes from that caller's
// deadline becomes ErrLeft, as if that caller had left.
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

// fetch gets the value of a key. Until the client is known to cache what it gets, fetch also checks
// that, with a second GET.
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
	return nil // another caller left
}

// sameCopy reports whether two values are the same copy in memory, and not empty. If they are,
// Redis has not notified of any change in between.
func sameCopy(a, b string) bool {
	return a != "" && b != "" && unsafe.StringData(a) == unsafe.StringData(b)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
