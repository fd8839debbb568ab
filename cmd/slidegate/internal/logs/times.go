package logs

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A calendar reads the times of syslog lines. Traditional syslog writes no year, so the calendar keeps the log moving
// forward: a line takes the earliest year in which it is at most 30 days before the newest line so far. From December to
// January the year goes up; a smaller step back is one of the clock. The first line takes 2001, whatever today's date
// is; or 2004 if it is of a 29th of February. Where a later line is of one, that year gets a day more: from then on, times are
// a day later than their dates, so that spans are right. Such times are read as UTC.
type calendar struct {
	newest  time.Time // over all lines, attempts or not
	assumed bool      // the year of the line at hand is not from the log
	leap    int       // the year that has a day more, if one has
}

const (
	firstYear     = 2001
	firstLeapYear = 2004
	stepBack      = 30 * 24 * time.Hour
)

// cut splits a line at the end of its time, which ends at a space. A priority such as <38> may stand before it.
func (c *calendar) cut(line string) (at time.Time, rest string, ok bool) {
	if strings.HasPrefix(line, "<") {
		_, line, _ = strings.Cut(line, ">")
	}
	c.assumed = false
	if len(line) > 15 && line[3] == ' ' { // "Dec 10 06:55:46", perhaps with a fraction
		clock, rest, _ := strings.Cut(line[7:], " ")
		at, err := time.Parse(time.Stamp, line[:7]+clock)
		if err != nil {
			return at, rest, false
		}
		return c.withYear(at), rest, true
	}
	stamp, rest, _ := strings.Cut(line, " ")
	if at, ok = parseRFC3339(stamp); ok {
		c.newest = later(c.newest, at)
	}
	return at, rest, ok
}

func (c *calendar) withYear(at time.Time) time.Time {
	c.assumed = true
	if c.newest.IsZero() {
		c.newest = firstTime(at)
		return c.newest
	}
	for year := c.newest.Add(-stepBack).Year(); ; year++ {
		if t := c.inYear(at, year); !t.Before(c.newest.Add(-stepBack)) {
			if at.Month() == time.February && at.Day() == 29 && t.Month() == time.March {
				c.leap = year
			}
			c.newest = later(c.newest, t)
			return t
		}
	}
}

// inYear is the time of a date in a year. The 29th of February is the 1st of March where there is none.
func (c *calendar) inYear(at time.Time, year int) time.Time {
	t := sameDate(at, year)
	if c.leap != 0 && (year > c.leap || year == c.leap && at.Month() > time.February) {
		return t.AddDate(0, 0, 1)
	}
	return t
}

// firstTime is the first time of a log.
func firstTime(at time.Time) time.Time {
	year := firstYear
	if at.Month() == time.February && at.Day() == 29 {
		year = firstLeapYear
	}
	return sameDate(at, year)
}

// sameDate moves a time to another year.
func sameDate(at time.Time, year int) time.Time {
	return time.Date(year, at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), time.UTC)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// parseRFC3339 also takes a zone without its colon, as journalctl -o short-iso writes it.
func parseRFC3339(s string) (time.Time, bool) {
	if len(s) < 20 || s[4] != '-' {
		return time.Time{}, false
	}
	layout := time.RFC3339
	if zone := s[len(s)-5]; zone == '+' || zone == '-' {
		layout = "2006-01-02T15:04:05-0700"
	}
	at, err := time.Parse(layout, s)
	return at.UTC(), err == nil && inRange(at)
}

// inRange reports whether the limiter can decide at this time.
func inRange(at time.Time) bool { return at.UnixMilli() >= 0 && at.UnixMilli() < maxMS }

const (
	maxMS      = 1 << 47 // in the year 6429
	maxSeconds = maxMS/1000 + 1
)

// parseTime reads RFC 3339, or seconds since 1970 with or without a fraction. So many seconds that they lie beyond inRange
// are milliseconds.
func parseTime(s string) (time.Time, error) {
	if at, ok := parseRFC3339(s); ok {
		return at, nil
	}
	whole, fraction, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	nanos, errFraction := strconv.ParseUint((fraction + "000000000")[:9], 10, 63)
	if err != nil || errFraction != nil || fraction != "" && !isNumber(fraction) {
		return time.Time{}, fmt.Errorf("%q is no time; write 2025-03-04T05:06:07Z or seconds since 1970", s)
	}
	at := time.Unix(int64(min(n, maxSeconds)), int64(nanos)).UTC()
	if !inRange(at) {
		at = time.UnixMilli(int64(n)).UTC()
	}
	if n >= maxMS {
		return time.Time{}, fmt.Errorf("%q lies beyond the year 6000; write seconds or milliseconds since 1970", s)
	}
	return at, nil
}
