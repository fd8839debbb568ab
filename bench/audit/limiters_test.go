package audit_test

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/slidegate/slidegate/bench/audit"
	"github.com/slidegate/slidegate/window"
)

// counting is a limiter that records the times of counted units, in order.
type counting struct {
	mu      sync.Mutex
	counted []time.Time
}

// attempt returns a limiter that calls decide, and counts each attempt that decide allows.
func (c *counting) attempt(decide func(at time.Time) (bool, time.Duration)) audit.Func {
	return func(context.Context) (bool, time.Duration, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		at := time.Now()
		allowed, wait := decide(at)
		if allowed {
			c.counted = append(c.counted, at)
		}
		return allowed, wait, nil
	}
}

// since returns how many units have been counted since from.
func (c *counting) since(from time.Time) (n int64) {
	for _, at := range c.counted {
		if !at.Before(from) {
			n++
		}
	}
	return n
}

// sliding returns a correct limiter: an exact log.
func sliding(l window.Limit) audit.Func {
	c := &counting{}
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

// fixedOfClock returns a limiter that starts a window at each multiple of Per.
func fixedOfClock(l window.Limit) audit.Func {
	c := &counting{}
	return c.attempt(func(at time.Time) (bool, time.Duration) {
		begin := at.Truncate(l.Per)
		return c.since(begin) < l.Max, begin.Add(l.Per).Sub(at)
	})
}

// fixedOfFirst returns a limiter whose windows start with the first attempt after the previous
// window.
func fixedOfFirst(l window.Limit) audit.Func {
	c := &counting{}
	var begin time.Time
	return c.attempt(func(at time.Time) (bool, time.Duration) {
		if at.Sub(begin) >= l.Per {
			begin = at
		}
		return c.since(begin) < l.Max, begin.Add(l.Per).Sub(at)
	})
}

// increx returns a limiter that behaves like INCREX of Redis 8.8 with UBOUND Max, PX Per and ENX,
// according to its documentation. The first allowed attempt starts a window. A denial changes
// nothing and reports no wait.
func increx(l window.Limit) audit.Func {
	var mu sync.Mutex
	var value int64
	var expires time.Time
	return func(context.Context) (bool, time.Duration, error) {
		mu.Lock()
		defer mu.Unlock()
		at := time.Now()
		if at.After(expires) {
			value, expires = 0, at.Add(l.Per)
		}
		if value+1 > l.Max {
			return false, 0, nil
		}
		value++
		return true, 0, nil
	}
}

// twoWindows returns a limiter that assumes that the units in the previous window were spread
// evenly.
func twoWindows(l window.Limit) audit.Func {
	c := &counting{}
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

// gcra returns a GCRA limiter with a burst of Max.
func gcra(l window.Limit) audit.Func {
	c := &counting{}
	var full time.Time // when all units are available again
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

// chargesDenials returns a limiter that also counts denied attempts.
func chargesDenials(l window.Limit) audit.Func {
	c := &counting{}
	return c.attempt(func(at time.Time) (bool, time.Duration) {
		allowed, _ := c.slides(l, at)
		if allowed {
			return true, 0
		}
		c.counted = append(c.counted, at)
		return false, c.counted[int64(len(c.counted))-l.Max].Add(l.Per).Sub(at)
	})
}

// wrongWaits returns a constructor of limiters whose waits are wrong by the given duration.
func wrongWaits(by time.Duration) func(window.Limit) audit.Func {
	return func(l window.Limit) audit.Func {
		right := sliding(l)
		return func(ctx context.Context) (bool, time.Duration, error) {
			allowed, wait, err := right(ctx)
			return allowed, max(wait+by, time.Millisecond), err
		}
	}
}

// stricter returns a limiter that allows half of Max.
func stricter(l window.Limit) audit.Func {
	l.Max /= 2
	return sliding(l)
}

// forgetsEarly returns a limiter that forgets units a fiftieth of Per too early.
func forgetsEarly(l window.Limit) audit.Func {
	l.Per -= l.Per / 50
	return sliding(l)
}

// forgetsLate returns a limiter that forgets units a tenth of Per too late.
func forgetsLate(l window.Limit) audit.Func {
	l.Per += l.Per / 10
	return sliding(l)
}

// checksFirst returns a limiter that first checks the limit and later counts the attempt, so that
// concurrent attempts race.
func checksFirst(l window.Limit) audit.Func {
	c := &counting{}
	check := func(at time.Time) (bool, time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.slides(l, at)
	}
	count := c.attempt(func(time.Time) (bool, time.Duration) { return true, 0 })
	return func(ctx context.Context) (bool, time.Duration, error) {
		allowed, wait := check(time.Now())
		if !allowed {
			return false, wait, nil
		}
		for range 100 {
			runtime.Gosched()
		}
		return count(ctx)
	}
}

// unlimited returns a limiter that allows everything.
func unlimited(window.Limit) audit.Func {
	return func(context.Context) (bool, time.Duration, error) { return true, 0, nil }
}
