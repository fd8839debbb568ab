// Package denials remembers denials, so that a client that keeps retrying costs Redis nothing.
//
// A remembered denial is repeated only while nothing can have changed the key. Before a request is
// sent, Look gets the value of the key by a cached GET: Redis then notifies the client of every
// change. If the request is denied, Remember keeps the denial with that value. Later, Look repeats
// the denial while the client still holds this very copy of the value, and until the wait is over.
// The value must be got before the request is sent, else a Reset in between would go unseen. And it
// must be the same copy: after a Reset and an admission in the same millisecond, the key can have
// the same bytes again.
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

// ErrLeft is what a Get returns, with the error of ctx, if its caller left.
var ErrLeft = errors.New("nothing was sent")

// Get returns the value of a key, empty if there is none, by a GET whose reply the client keeps for
// at most ttl. Hit reports that the client knew the value, and Redis was not asked. An error that
// is not ErrLeft means that Redis cannot answer.
type Get func(ctx context.Context, key string, timeout, ttl time.Duration) (value string, hit bool, err error)

// Cache remembers the denials of a limiter.
type Cache struct {
	capacity  int
	get       Get
	reportOff func(context.Context)

	tracks atomic.Bool  // the client keeps what it gets
	misses atomic.Int32 // how often it did not
	off    atomic.Bool  // it never does, so nothing is remembered

	mu      sync.Mutex
	denials map[string]*denial // by key
}

// denial is what is known of a key. It is never changed: another one takes its place.
type denial struct {
	request Request
	reply   Reply
	replied time.Time
	until   time.Time // when the wait is over
	value   string    // of the key, before the request was sent; empty if not known: then the denial is not repeated

	confirmed atomic.Int64 // when the last look began that confirmed the denial, in ns after replied

	mu   sync.Mutex
	look *look // that is under way
}

// Request is what an attempt asks for. A denial is repeated only for the same request.
type Request struct {
	Units  int64
	Limits string // as the script gets them
}

// Reply is the reply to a request, in the integers of the scripts.
type Reply struct {
	At   int64
	Rows []int64 // for each limit: used, retry after in ms, reset after in ms
}

// lease is how long a look holds for all callers. It is short beside the round trip in which Redis
// notifies of a change.
const lease = 100 * time.Microsecond

// maxMisses is how often in all a client may not hold a value that it just got, until the cache is
// off.
const maxMisses = 3

// New returns a Cache for at most so many denials. It calls reportOff once, if the client does not
// keep what it gets.
func New(capacity int, get Get, reportOff func(context.Context)) *Cache {
	return &Cache{capacity: capacity, get: get, reportOff: reportOff, denials: map[string]*denial{}}
}

// Seen is what a Look found out about a key.
type Seen struct {
	Denied bool          // the request is denied; do not send it
	Reply  Reply         // if Denied: of the denial that is repeated
	Age    time.Duration // of that

	key     string
	request Request
	value   string // before the request is sent
}

// Look reports whether a request is known to be denied. Otherwise send the request, and then call
// Remember or Forget. It takes no longer than timeout, if that is not below 0.
func (c *Cache) Look(ctx context.Context, key string, request Request, timeout time.Duration) (Seen, error) {
	seen, d := Seen{key: key, request: request}, c.find(key)
	now := time.Now()
	if c.off.Load() || d == nil || d.request != request || !now.Before(d.until) {
		return seen, nil
	}
	if at := d.confirmed.Load(); at != 0 && now.Sub(d.replied) < time.Duration(at)+lease {
		return d.repeat(seen, now), nil
	}
	l := d.share(ctx, func() look { return c.lookUp(ctx, key, timeout, d.until.Sub(now)) })
	if l.err != nil {
		c.Forget(key)
		return seen, ownError(ctx, l.err)
	}
	if !l.hit || !sameCopy(l.value, d.value) {
		seen.value = l.value
		return seen, nil
	}
	d.confirmed.Store(int64(now.Sub(d.replied)))
	return d.repeat(seen, now), nil
}

func (d *denial) repeat(seen Seen, now time.Time) Seen {
	seen.Denied, seen.Reply, seen.Age = true, d.reply, now.Sub(d.replied)
	return seen
}

// Remember keeps the reply to a request that was sent after a Look at a certain time. An admission
// is kept only if it took the last units of a key that is known, so that the next request is looked
// up first.
func (c *Cache) Remember(seen Seen, sent time.Time, allowed bool, reply Reply) {
	d := &denial{request: seen.request, reply: reply, replied: time.Now(), value: seen.value}
	for i := 1; i < len(reply.Rows); i += 3 {
		d.until = later(d.until, sent.Add(time.Duration(min(reply.Rows[i], longest))*time.Millisecond))
	}
	if allowed {
		d.value = ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if allowed && c.denials[seen.key] == nil || !d.until.After(d.replied) {
		delete(c.denials, seen.key)
		return
	}
	c.makeRoom(seen.key)
	c.denials[seen.key] = d
}

// longest is how many ms a denial is remembered at most: a year.
const longest = 365 * 24 * 3600 * 1000

// makeRoom forgets any other denial if the cache is full.
func (c *Cache) makeRoom(key string) {
	if c.denials[key] != nil || len(c.denials) < c.capacity {
		return
	}
	for other := range c.denials {
		delete(c.denials, other)
		return
	}
}

// Forget forgets what is known of a key.
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

// look is one look at the value of a key.
type look struct {
	done  chan struct{}
	value string
	hit   bool
	err   error
}

// share has one caller at a time look. The others that come meanwhile wait for what it sees.
func (d *denial) share(ctx context.Context, lookUp func() look) look {
	d.mu.Lock()
	if l := d.look; l != nil {
		d.mu.Unlock()
		select {
		case <-l.done:
			return *l
		case <-ctx.Done():
			return look{err: ErrLeft}
		}
	}
	l := &look{done: make(chan struct{}), err: ErrLeft} // the error if lookUp panics
	d.look = l
	d.mu.Unlock()
	defer d.finish(l)
	found := lookUp()
	l.value, l.hit, l.err = found.value, found.hit, found.err
	return found
}

func (d *denial) finish(l *look) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.look = nil
	close(l.done)
}

// lookUp gets the value of a key. Until it is known that the client keeps what it gets, it also
// finds that out.
func (c *Cache) lookUp(ctx context.Context, key string, timeout, ttl time.Duration) (l look) {
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

// ownError returns what the error of a look, which callers share, means for one of them.
func ownError(ctx context.Context, err error) error {
	switch {
	case !errors.Is(err, ErrLeft):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrLeft, ctx.Err())
	}
	return nil // another caller left
}

// sameCopy reports whether two values are one copy in memory, and not empty: then Redis has
// notified of no change in between.
func sameCopy(a, b string) bool {
	return a != "" && b != "" && unsafe.StringData(a) == unsafe.StringData(b)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
