package audit_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/audit"
	"github.com/slidegate/slidegate/window"
)

// A clock is where a limiter reads the time.
type clock func() time.Time

// counting is a limiter that keeps the times of what it counted, in order.
type counting struct {
	mu      sync.Mutex
	now     clock
	counted []time.Time
}

// attempt has decide look at what was counted. It counts what decide admits.
func (c *counting) attempt(decide func(at time.Time) (bool, time.Duration)) audit.Func {
	return func(context.Context) (bool, time.Duration, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		at := c.now()
		allowed, wait := decide(at)
		if allowed {
			c.counted = append(c.counted, at)
		}
		return allowed, wait, nil
	}
}

// since counts from an instant on.
func (c *counting) since(from time.Time) (n int64) {
	for _, at := range c.counted {
		if !at.Before(from) {
			n++
		}
	}
	return n
}

// sliding is right: an exact log.
func sliding(l window.Limit, now clock) audit.Func {
	c := &counting{now: now}
	return c.attempt(func(at time.Time) (bool, time.Duration) { return c.slides(l, at) })
}

func (c *counting) slides(l window.Limit, at time.Time) (bool, time.Duration) {
	if n := len(c.counted); int64(n) >= l.Max {
		if free := c.counted[int64(n)-l.Max].Add(l.Per); free.After(at) {
			return false, free.Sub(at)
		}
	}
	return true, 0
}

// fixedOfClock begins a window with each multiple of Per.
func fixedOfClock(l window.Limit, now clock) audit.Func {
	c := &counting{now: now}
	return c.attempt(func(at time.Time) (bool, time.Duration) {
		begin := at.Truncate(l.Per)
		return c.since(begin) < l.Max, begin.Add(l.Per).Sub(at)
	})
}

// fixedOfFirst begins a window with the first attempt after the last one.
func fixedOfFirst(l window.Limit, now clock) audit.Func {
	c := &counting{now: now}
	var begin time.Time
	return c.attempt(func(at time.Time) (bool, time.Duration) {
		if at.Sub(begin) >= l.Per {
			begin = at
		}
		return c.since(begin) < l.Max, begin.Add(l.Per).Sub(at)
	})
}

// twoWindows takes what it knows of the last window for spread evenly.
func twoWindows(l window.Limit, now clock) audit.Func {
	c := &counting{now: now}
	fits := func(at time.Time) bool {
		begin := at.Truncate(l.Per)
		current := c.since(begin)
		weight := 1 - float64(at.Sub(begin))/float64(l.Per)
		return float64(c.since(begin.Add(-l.Per))-current)*weight+float64(current)+1 <= float64(l.Max)
	}
	return c.attempt(func(at time.Time) (bool, time.Duration) {
		if fits(at) {
			return true, 0
		}
		var short, wait time.Duration = 0, 2 * l.Per
		for wait-short > time.Millisecond {
			if half := (short + wait) / 2; fits(at.Add(half)) {
				wait = half
			} else {
				short = half
			}
		}
		return false, wait
	})
}

// gcra has a burst of Max.
func gcra(l window.Limit, now clock) audit.Func {
	c := &counting{now: now}
	var full time.Time // when all is available again
	each := l.Per / time.Duration(l.Max)
	return c.attempt(func(at time.Time) (bool, time.Duration) {
		next := full
		if next.Before(at) {
			next = at
		}
		if wait := next.Add(each).Sub(at) - l.Per; wait > 0 {
			return false, wait
		}
		full = next.Add(each)
		return true, 0
	})
}

// chargesDenials counts whatever comes.
func chargesDenials(l window.Limit, now clock) audit.Func {
	c := &counting{now: now}
	return c.attempt(func(at time.Time) (bool, time.Duration) {
		allowed, _ := c.slides(l, at)
		if allowed {
			return true, 0
		}
		c.counted = append(c.counted, at)
		return false, c.counted[int64(len(c.counted))-l.Max].Add(l.Per).Sub(at)
	})
}

// waitsOff returns waits that are wrong by a duration.
func waitsOff(by time.Duration) func(window.Limit, clock) audit.Func {
	return func(l window.Limit, now clock) audit.Func {
		right := sliding(l, now)
		return func(ctx context.Context) (bool, time.Duration, error) {
			allowed, wait, err := right(ctx)
			return allowed, max(wait+by, time.Millisecond), err
		}
	}
}

// silent returns no waits.
func silent(l window.Limit, now clock) audit.Func {
	right := sliding(l, now)
	return func(ctx context.Context) (bool, time.Duration, error) {
		allowed, _, err := right(ctx)
		return allowed, 0, err
	}
}

// instances take turns, and each counts for itself.
func instances(l window.Limit, now clock) audit.Func {
	var turn atomic.Int64
	each := []audit.Func{sliding(l, now), sliding(l, now)}
	return func(ctx context.Context) (bool, time.Duration, error) { return each[turn.Add(1)%2](ctx) }
}

// stricter admits half.
func stricter(l window.Limit, now clock) audit.Func {
	l.Max /= 2
	return sliding(l, now)
}

// hasty forgets a fiftieth too early.
func hasty(l window.Limit, now clock) audit.Func {
	l.Per -= l.Per / 50
	return sliding(l, now)
}

// lazy forgets a tenth too late.
func lazy(l window.Limit, now clock) audit.Func {
	l.Per += l.Per / 10
	return sliding(l, now)
}

// looksFirst looks, and counts later.
func looksFirst(l window.Limit, now clock) audit.Func {
	c := &counting{now: now}
	look := func(at time.Time) (bool, time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.slides(l, at)
	}
	count := c.attempt(func(time.Time) (bool, time.Duration) { return true, 0 })
	return func(ctx context.Context) (bool, time.Duration, error) {
		allowed, wait := look(now())
		if !allowed {
			return false, wait, nil
		}
		for range 100 {
			runtime.Gosched()
		}
		return count(ctx)
	}
}

// unlimited admits all.
func unlimited(window.Limit, clock) audit.Func {
	return func(context.Context) (bool, time.Duration, error) { return true, 0, nil }
}

// oneByOne asks a limiter for each limit, in order, up to the first that denies.
func oneByOne(limits []window.Limit, now clock) audit.Func {
	var each []audit.Func
	for _, l := range limits {
		each = append(each, sliding(l, now))
	}
	return func(ctx context.Context) (bool, time.Duration, error) {
		for _, attempt := range each {
			if allowed, wait, err := attempt(ctx); !allowed {
				return false, wait, err
			}
		}
		return true, 0, nil
	}
}
