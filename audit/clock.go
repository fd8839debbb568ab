package audit

import (
	"sync/atomic"
	"time"
)

// Clock is a virtual clock that advances only when an audit waits. Pass its Now method to a limiter
// that accepts a clock (see window.Config), and pass the Clock itself to CheckClock or Config. It
// is safe for concurrent use.
type Clock struct{ at atomic.Int64 }

// NewClock returns a clock that shows 12:15 UTC on 1 January 2026.
func NewClock() *Clock {
	c := new(Clock)
	c.at.Store(time.Date(2026, 1, 1, 12, 15, 0, 0, time.UTC).UnixNano())
	return c
}

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time { return time.Unix(0, c.at.Load()) }

// now returns the time on c, or the real time if c is nil.
func (c *Clock) now() time.Time {
	if c == nil {
		return time.Now()
	}
	return c.Now()
}

// sleep waits until d has passed or done is closed. If c is not nil, sleep only advances it by d,
// rounded up to whole milliseconds.
func (c *Clock) sleep(done <-chan struct{}, d time.Duration) {
	if c != nil {
		c.at.Add(int64((max(d, 0) + time.Millisecond - 1).Truncate(time.Millisecond)))
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-done:
	}
}

// inBubble reports whether the caller runs in a testing/synctest bubble, where the clock starts in
// the year 2000.
func inBubble() bool { return time.Now().Year() == 2000 }
