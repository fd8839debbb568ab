// Package clock converts between times and the integers of stored records, and formats durations.
package clock

import (
	"fmt"
	"time"
)

// Clock is a limiter's clock, in the unit of the limiter's records: milliseconds for window,
// microseconds for ar1.
type Clock struct {
	Now  func() time.Time      // nil means the Redis server's clock or, in memory, this process's monotonic clock
	Tick time.Duration         // one unit
	Unit func(time.Time) int64 // converts a time to units since 1970
	Time func(int64) time.Time // the inverse of Unit
	End  int64                 // the first time that the scripts reject, in units
	Year int                   // the year of End
}

// Read returns the time of Now. It returns an error if the scripts would reject that time.
func (c Clock) Read() (int64, error) {
	now := c.Now()
	t, year := c.Unit(now), now.UTC().Year() // Unit overflows for a distant year
	if t < 0 || t >= c.End || year < 1970 || year > c.Year {
		return 0, fmt.Errorf("the clock of Config.Now reads %v; it must be between 1970 and %d", now, c.Year)
	}
	return t, nil
}

// Milliseconds returns a Duration of n ms, but at most 290 years, because a Duration cannot exceed
// 292 years.
func Milliseconds(n int64) time.Duration {
	const longest = 290 * 365 * 24 * time.Hour
	return time.Duration(min(n, longest.Milliseconds())) * time.Millisecond
}
