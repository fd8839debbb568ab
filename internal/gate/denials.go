package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/slidegate/slidegate/internal/remote"
)

// denials are what is remembered of events that were denied, so that whoever keeps asking costs Redis nothing. The client watches the
// key: while it still knows the value that it got just before the attempt was sent that was denied, and until that attempt's wait is
// over, the same attempt is denied again. It must have got the value before, else a Reset in between would go unseen. And it must
// know that very copy: after a Reset and an admission in the same millisecond, the key can have the same value again.
//
// Of the attempts on such an event that are not answered here, one is made at a time, and the others wait for what it finds.
type denials[U any] struct {
	redis *Redis[U]
	most  int

	proved atomic.Bool  // the client keeps what it looks at
	vain   atomic.Int32 // how often it did not
	off    atomic.Bool  // it never does

	mu    sync.Mutex
	of    map[string]*denial
	turns map[string]*turn
}

// denial is what is known of an event. What was known before is never changed: another takes its place.
type denial struct {
	key   string
	n     int64     // units of the attempt
	came  time.Time // the answer
	until time.Time // up to which it is denied if it is made again, unless the key changes: its wait after it was sent
	value string    // of the key, as the client got it just before it was sent; empty if not known, and then this answers nothing
	reply []int64

	fresh atomic.Int64 // when the last look began that proved it, in ns after it came

	looks sync.Mutex
	seen  glance
	done  chan struct{} // of the look that goes on; nil if nobody waits for it
	busy  bool          // one does
}

// lease is how long a look holds for all callers: short beside the round trip in which Redis tells of a change.
const lease = 100 * time.Microsecond

// glance is what one look at the key showed.
type glance struct {
	value string
	hit   bool
	err   error
}

// turn is an attempt that others wait for.
type turn struct {
	done chan struct{}
	err  error
}

func newDenials[U any](r *Redis[U], most int) *denials[U] {
	return &denials[U]{redis: r, most: most, of: map[string]*denial{}, turns: map[string]*turn{}}
}

// decide is the answer to an attempt.
func (m *denials[U]) decide(ctx context.Context, event string, n int64) (Decision[U], error) {
	began := time.Now()
	for now := began; ; now = time.Now() {
		k := m.find(event)
		if k == nil || k.n != n {
			return m.ask(ctx, began, event, n, "")
		}
		if m.redis.L.Timeout >= 0 && now.Sub(began) >= m.redis.L.Timeout {
			return Decision[U]{}, fmt.Errorf("key %s: %w: it was not sent, as attempts before it took all the time", k.key, remote.ErrOutage)
		}
		value, denied, err := m.look(ctx, began, now, event, k)
		if err != nil {
			return Decision[U]{}, err
		}
		if denied {
			return m.again(k, now), nil
		}
		if t, first := m.takeTurn(event); first {
			return m.askInTurn(ctx, began, event, n, value, t)
		} else if err := m.wait(ctx, began, k.key, t); err != nil {
			return Decision[U]{}, err
		}
	}
}

// askInTurn ends the turn however the attempt ends.
func (m *denials[U]) askInTurn(ctx context.Context, began time.Time, event string, n int64, value string, t *turn) (d Decision[U], err error) {
	err = context.Canceled // of whoever panics
	defer func() { m.endTurn(event, t, err) }()
	d, err = m.ask(ctx, began, event, n, value)
	return d, err
}

func (m *denials[U]) find(event string) *denial {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[event]
}

func (m *denials[U]) forget(event string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, event)
}

// left is how much time there still is for Redis, of what a call has in all.
func (m *denials[U]) left(began time.Time) time.Duration {
	if m.redis.L.Timeout < 0 {
		return m.redis.L.Timeout
	}
	return max(1, m.redis.L.Timeout-time.Since(began))
}

// look tells the value of the key, and whether that proves that the attempt is denied.
func (m *denials[U]) look(ctx context.Context, began, now time.Time, event string, k *denial) (value string, denied bool, err error) {
	if !now.Before(k.until) {
		return "", false, nil
	}
	if fresh := k.fresh.Load(); fresh != 0 && now.Sub(k.came) < time.Duration(fresh)+lease {
		return "", true, nil
	}
	g := m.glance(ctx, began, k, k.until.Sub(now))
	if g.err != nil {
		m.forget(event)
		if ctx.Err() != nil || remote.IsOutage(g.err) && !gone(g.err) {
			return "", false, g.err
		}
		return "", false, nil // the script will say what is wrong with the value, or another caller left
	}
	if !g.hit && g.value != "" && !m.proved.Load() {
		m.prove(ctx, began, k, g.value)
	}
	if !g.hit || !same(g.value, k.value) {
		return g.value, false, nil
	}
	k.fresh.Store(int64(now.Sub(k.came)))
	return g.value, true, nil
}

// glance looks at what the client knows of the key. One caller at a time does, in a goroutine that it can leave, and others who come
// meanwhile wait for what it sees.
func (m *denials[U]) glance(ctx context.Context, began time.Time, k *denial, ttl time.Duration) glance {
	k.looks.Lock()
	if k.busy {
		return k.shared(ctx)
	}
	k.busy = true
	k.looks.Unlock()
	g := glance{err: context.Canceled} // of whoever panics
	defer func() { k.show(g) }()
	g.value, g.hit, g.err = m.redis.runner.Look(ctx, m.left(began), k.key, ttl)
	return g
}

// shared is what the look that goes on sees, or one after it. It lets go of looks, which its caller holds.
func (k *denial) shared(ctx context.Context) glance {
	if k.done == nil {
		k.done = make(chan struct{})
	}
	done := k.done
	k.looks.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
		return glance{err: fmt.Errorf("nothing was sent: %w", ctx.Err())}
	}
	k.looks.Lock()
	defer k.looks.Unlock()
	return k.seen
}

// show ends a look.
func (k *denial) show(g glance) {
	k.looks.Lock()
	defer k.looks.Unlock()
	k.seen, k.busy = g, false
	if k.done != nil {
		close(k.done)
		k.done = nil
	}
}

// gone tells whether an error is that of a caller who left.
func gone(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// same tells whether both are one copy of a value, and not empty: the client has not been told of a change in between.
func same(a, b string) bool {
	return a != "" && b != "" && unsafe.StringData(a) == unsafe.StringData(b)
}

// prove looks once more: the client must know the value by now. If it does not, time after time, nothing is remembered any more.
func (m *denials[U]) prove(ctx context.Context, began time.Time, k *denial, value string) {
	again, hit, err := m.redis.runner.Look(ctx, m.left(began), k.key, time.Minute)
	if hit {
		m.proved.Store(true)
	} else if err == nil && again == value && m.vain.Add(1) >= 3 && m.off.CompareAndSwap(false, true) {
		m.redis.L.tell(CacheOff)
	}
}

// again is the denial once more, so much later.
func (m *denials[U]) again(k *denial, now time.Time) Decision[U] {
	l, past := m.redis.L, now.Sub(k.came)
	d := Decision[U]{At: l.Clock.Time(k.reply[1]).Add(past).UTC(), Usage: make([]U, 0, len(l.Limits))}
	for i := range l.Limits {
		of, ms := k.reply[3*i+2:], past.Milliseconds()
		l.Use(&d, i, of[0], max(0, of[1]-ms), max(0, of[2]-ms))
	}
	return d
}

// ask has the script decide, and remembers a denial with the value that the key had before. Of an event that is known it also
// remembers that it will be denied, when an attempt takes the last that is left.
func (m *denials[U]) ask(ctx context.Context, began time.Time, event string, n int64, value string) (Decision[U], error) {
	k := &denial{key: m.redis.L.Key(event), n: n, value: value}
	d, err := m.send(ctx, began, event, k)
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of[event] != nil
	if err != nil || d.Allowed && !known || !k.until.After(k.came) {
		delete(m.of, event)
		return d, err
	}
	if !known && len(m.of) >= m.most {
		for other := range m.of { // any
			delete(m.of, other)
			break
		}
	}
	m.of[event] = k
	return d, nil
}

// send has the script decide, and fills in what it said.
func (m *denials[U]) send(ctx context.Context, began time.Time, event string, k *denial) (Decision[U], error) {
	r := m.redis
	args, err := r.arguments(string(Allow), k.n, r.all...)
	sent := time.Now()
	if err == nil {
		k.reply, err = r.runner.RunWithin(ctx, m.left(began), k.key, args)
	}
	if err != nil {
		return Decision[U]{}, err
	}
	d, err := r.decision(Allow, event, k.n, k.reply)
	if err != nil {
		return d, err
	}
	if d.Allowed {
		k.value = ""
	}
	k.came = time.Now()
	for i := range r.L.Limits {
		k.until = latest(k.until, sent.Add(Milliseconds(k.reply[3*i+3])))
	}
	return d, nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// takeTurn tells whether this is the first attempt, or else which one is.
func (m *denials[U]) takeTurn(event string) (_ *turn, first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.turns[event]; t != nil {
		return t, false
	}
	t := &turn{done: make(chan struct{})}
	m.turns[event] = t
	return t, true
}

func (m *denials[U]) endTurn(event string, t *turn, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.turns, event)
	t.err = err
	close(t.done)
}

// wait waits for the end of a turn. That Redis did not answer there is an error here, too; that its caller left is not.
func (m *denials[U]) wait(ctx context.Context, began time.Time, key string, t *turn) error {
	var up <-chan time.Time
	if left := m.left(began); left >= 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		up = timer.C
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		return fmt.Errorf("nothing was sent: %w", ctx.Err())
	case <-up:
		return fmt.Errorf("key %s: %w: an attempt before it still waits for a reply", key, remote.ErrOutage)
	}
	if remote.IsOutage(t.err) && !gone(t.err) {
		return fmt.Errorf("key %s: %w: so it was with an attempt before it: %v", key, remote.ErrOutage, t.err) //nolint:errorlint // that of another attempt is only told
	}
	return nil
}
