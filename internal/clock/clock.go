// Package clock converts between times and the integers of stored records, formats durations, and
// sleeps.
package clock

import (
	"context"
	"fmt"
	"time"
)

// Clock is a limiter's clock, in the unit of the limiter's records: milliseconds for window,
// microseconds for ar1.
type Clock struct {
	Now  func() time.Time      // nil means the Redis server's clock or, in memory, this process's monotonic clock
	Unit func(time.Time) int64 // converts a time to units since 1970
	Time func(int64) time.Time // the inverse of Unit, in UTC
	End  int64                 // the first time that the scripts reject, in units
}

// Millis returns a Clock in ms, for window and pace, whose scripts reject times from the year 6429
// on. now is Config.Now, which can be nil.
func Millis(now func() time.Time) Clock {
	return Clock{
		Now: now, Unit: time.Time.UnixMilli, Time: func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }, End: 1 << 47,
	}
}

// Micros is like Millis, but in µs, for ar1 and inflight, whose scripts end in the year 2255.
func Micros(now func() time.Time) Clock {
	return Clock{
		Now: now, Unit: time.Time.UnixMicro, Time: func(us int64) time.Time { return time.UnixMicro(us).UTC() }, End: 1 << 53,
	}
}

// Known returns the time t of a reply or a record, or the zero time if t is 0 or less.
func (c Clock) Known(t int64) time.Time {
	if t <= 0 {
		return time.Time{}
	}
	return c.Time(t)
}

// Read returns the time of Now. It returns an error if the scripts would reject that time.
func (c Clock) Read() (int64, error) {
	now, end := c.Now(), c.Time(c.End)
	if now.Unix() < 0 || !now.Before(end) { // Unit overflows for a distant year
		return 0, fmt.Errorf("the clock of Config.Now reads %v; it must be between 1970 and %d", now, end.Year())
	}
	return c.Unit(now), nil
}

// Milliseconds returns a Duration of n ms, but at most 290 years, because a Duration cannot exceed
// 292 years.
func Milliseconds(n int64) time.Duration {
	const longest = 290 * 365 * 24 * time.Hour
	return time.Duration(min(n, longest.Milliseconds())) * time.Millisecond
}

// Sleep sleeps for d, or until ctx is done, in which case it returns the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
