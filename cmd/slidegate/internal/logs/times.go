package logs

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// calendar parses the times of syslog lines as UTC. Traditional syslog omits the year, so calendar
// assumes one that keeps the log moving forward: a line gets the earliest year in which it is at
// most 30 days older than the newest line so far. The year therefore increases from December to
// January, and a smaller step back is taken for a clock step. The first line gets the year 2001,
// whatever today's date is, or 2004 if its date is 29 February. If a later line is dated 29
// February in a year that lacks this day, the day is added to that year. From then on, times are a
// day later than the dates in the log, so that the intervals between them are right.
type calendar struct {
	newest  time.Time // the newest time of any line, whether it is an attempt or not
	assumed bool      // the current line has no year
	leap    int       // the year with an extra day, or 0
}

const (
	firstYear     = 2001
	firstLeapYear = 2004
	stepBack      = 30 * 24 * time.Hour
)

// cut splits a line at the space after its time. The time may be preceded by a priority such as
// <38>.
func (c *calendar) cut(line string) (at time.Time, rest string, ok bool) {
	if strings.HasPrefix(line, "<") {
		_, line, _ = strings.Cut(line, ">")
	}
	c.assumed = false
	if at, rest, ok := cutStamp(line); ok {
		rest, ok = strings.CutPrefix(rest, " ")
		return c.withYear(at), rest, ok
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

// inYear moves a time to the given year. If that year has no 29 February, it returns 1 March
// instead.
func (c *calendar) inYear(at time.Time, year int) time.Time {
	t := sameDate(at, year)
	if c.leap != 0 && (year > c.leap || year == c.leap && at.Month() > time.February) {
		return t.AddDate(0, 0, 1)
	}
	return t
}

// firstTime returns the first time of a log.
func firstTime(at time.Time) time.Time {
	year := firstYear
	if at.Month() == time.February && at.Day() == 29 {
		year = firstLeapYear
	}
	return sameDate(at, year)
}

// sameDate moves a time to the given year.
func sameDate(at time.Time, year int) time.Time {
	return time.Date(year, at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), time.UTC)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// startAt makes the next line without a year get a time near t.
func (c *calendar) startAt(t time.Time) { c.newest = t }

// cutStamp parses a time such as "Mar 4 05:06:07.25" at the start of s. The result is in the year
// 0.
func cutStamp(s string) (at time.Time, rest string, ok bool) {
	const shortest = len("Mar 4 05:06:07")
	if len(s) < shortest || s[3] != ' ' {
		return at, s, false
	}
	day, clock, _ := strings.Cut(strings.TrimPrefix(s[4:], " "), " ")
	if len(day) > 2 || len(clock) < 8 || clock[2] != ':' || clock[5] != ':' {
		return at, s, false
	}
	at, ok = date(0, monthOf(s[:3]), digits(day), clock)
	fraction, rest := cutFraction(clock[8:])
	return at.Add(fraction), rest, ok
}

// cutDateTime parses a time such as 2025-03-04T05:06:07.089+01:00 at the start of s. The date may
// contain slashes, and a space may replace the T. A time without a zone is taken as UTC. A time
// followed by AM or PM is rejected.
func cutDateTime(s string) (at time.Time, rest string, ok bool) {
	const shortest = len("2025-03-04T05:06:07")
	if len(s) < shortest || s[4] != s[7] || s[4] != '-' && s[4] != '/' || s[10] != 'T' && s[10] != ' ' && s[10] != '\t' || s[13] != ':' || s[16] != ':' {
		return at, s, false
	}
	at, ok = date(digits(s[:4]), time.Month(digits(s[5:7])), digits(s[8:10]), s[11:])
	fraction, rest := cutFraction(s[shortest:])
	east, rest, _ := cutZone(rest)
	at = at.Add(fraction - east)
	halves := strings.HasPrefix(rest, " AM") || strings.HasPrefix(rest, " PM")
	return at, rest, ok && inRange(at) && !halves
}

const webTime = "02/Jan/2006:15:04:05 -0700"

// cutWebTime parses a time such as 10/Oct/2000:13:55:36 -0700 at the start of s.
func cutWebTime(s string) (at time.Time, rest string, ok bool) {
	if len(s) < len(webTime) || s[2] != '/' || s[6] != '/' || s[11] != ':' || s[14] != ':' || s[17] != ':' || s[20] != ' ' {
		return at, s, false
	}
	at, ok = date(digits(s[7:11]), monthOf(s[3:6]), digits(s[:2]), s[12:])
	east, hasZone := parseZone(s[21:26])
	at = at.Add(-east)
	return at, s[26:], ok && hasZone && inRange(at)
}

// parseWebTime is like cutWebTime, but the time must be all of s.
func parseWebTime(s string) (time.Time, bool) {
	at, rest, ok := cutWebTime(s)
	return at, ok && rest == ""
}

// date returns the time on the given day in UTC, with a clock such as 05:06:07. It rejects dates
// such as 31 February, which time.Date would change to 3 March.
func date(year int, month time.Month, day int, clock string) (time.Time, bool) {
	hour, minute, second := digits(clock[:2]), digits(clock[3:5]), digits(clock[6:8])
	at := time.Date(year, month, day, hour, minute, second, 0, time.UTC)
	h, m, s := at.Clock()
	return at, at.Month() == month && at.Day() == day && h == hour && m == minute && s == second
}

// monthOf returns the month for a name such as Mar, or 0 if there is none.
func monthOf(name string) time.Month {
	n := strings.Index("JanFebMarAprMayJunJulAugSepOctNovDec", name)
	if n%3 != 0 {
		return 0
	}
	return time.Month(n/3 + 1)
}

// cutFraction parses a fraction of a second with up to nanosecond precision. After a comma, which
// Python writes, there must be exactly three digits.
func cutFraction(s string) (fraction time.Duration, rest string) {
	if s == "" || s[0] != '.' && s[0] != ',' {
		return 0, s
	}
	rest = strings.TrimLeft(s[1:], "0123456789")
	number := s[1 : len(s)-len(rest)]
	if number == "" || s[0] == ',' && len(number) != 3 {
		return 0, s
	}
	return time.Duration(digits((number + "000000000")[:9])), rest
}

// cutZone parses Z, +01:00, +0100 or +01, or " UTC" or " +0100", at the start of s.
func cutZone(s string) (east time.Duration, rest string, ok bool) {
	for _, utc := range [...]string{"Z", " UTC"} {
		if rest, ok := strings.CutPrefix(s, utc); ok {
			return 0, rest, true
		}
	}
	zone := strings.TrimPrefix(s, " ")
	spaced := len(zone) < len(s)
	switch {
	case len(zone) >= 6 && zone[3] == ':' && !spaced:
		east, ok = parseZone(zone[:3] + zone[4:6])
		zone = zone[6:]
	case len(zone) >= 5 && digits(zone[3:5]) >= 0:
		east, ok = parseZone(zone[:5])
		zone = zone[5:]
	case len(zone) >= 3 && !spaced:
		east, ok = parseZone(zone[:3] + "00")
		zone = zone[3:]
	}
	if !ok {
		return 0, s, false
	}
	return east, zone, true
}

// parseZone parses an offset such as -0330, which is three and a half hours west.
func parseZone(s string) (east time.Duration, ok bool) {
	hours, minutes := digits(s[1:3]), digits(s[3:5])
	if hours < 0 || hours > 23 || minutes < 0 || minutes > 59 {
		return 0, false
	}
	east = time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	if s[0] == '-' {
		east = -east
	}
	return east, s[0] == '-' || s[0] == '+'
}

// digits parses an unsigned number. It returns -1 if s is not one.
func digits(s string) (n int) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
		n = 10*n + int(s[i]-'0')
	}
	return n
}

// parseRFC3339 parses a time in RFC 3339 format. It also accepts a zone without a colon, which
// journalctl -o short-iso writes.
func parseRFC3339(s string) (time.Time, bool) {
	at, rest, ok := cutDateTime(s)
	ok = ok && rest == "" && s[4] == '-' && s[10] == 'T' && (s[len(s)-1] == 'Z' || strings.LastIndexAny(s, "+-") >= len(s)-len("+01:00"))
	return at, ok && !strings.Contains(s, " ")
}

// inRange reports whether a limiter can decide at the given time.
func inRange(at time.Time) bool { return at.UnixMilli() >= 0 && at.UnixMilli() < maxMS }

const (
	maxMS      = 1 << 47 // a time in the year 6429
	maxSeconds = maxMS/1000 + 1
)

// parseTime parses RFC 3339, or seconds since 1970 with or without a fraction. If a number is
// beyond inRange as seconds, it is read as milliseconds, then as microseconds, then as nanoseconds.
func parseTime(s string) (time.Time, error) {
	if at, ok := parseRFC3339(s); ok {
		return at, nil
	}
	whole, fraction, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	nanos, errFraction := strconv.ParseUint((fraction + "000000000")[:9], 10, 63)
	if err != nil || errFraction != nil || fraction != "" && !isNumber(fraction) {
		return time.Time{}, fmt.Errorf("%q is not a time; write 2025-03-04T05:06:07Z or seconds since 1970", s)
	}
	at := time.Unix(int64(min(n, maxSeconds)), int64(nanos)).UTC()
	if !inRange(at) {
		at = time.UnixMilli(int64(n)).UTC()
	}
	switch {
	case n >= maxMS*1000:
		at = time.Unix(0, int64(n)).UTC()
	case n >= maxMS:
		at = time.UnixMicro(int64(n)).UTC()
	}
	return at, nil
}

// parseAnyTime parses what parseTime accepts, as well as the other date formats found in log
// fields.
func parseAnyTime(s string) (time.Time, error) {
	if at, rest, ok := cutDateTime(s); ok && rest == "" {
		return at, nil
	}
	if at, ok := parseWebTime(s); ok {
		return at, nil
	}
	return parseTime(withoutExponent(s))
}

// findTime returns the first date with a time anywhere in a line.
func (c *calendar) findTime(line string) (at time.Time, ok bool) {
	c.assumed = false
	for i := range len(line) {
		if i > 0 && isWordByte(line[i-1]) || !isWordByte(line[i]) {
			continue
		}
		s := line[i:]
		if at, _, ok = cutDateTime(s); ok {
			return at, true
		}
		if at, _, ok = cutWebTime(s); ok {
			return at, true
		}
		if stamp, rest, found := cutStamp(s); found {
			return c.dated(stamp, rest), true
		}
	}
	return at, false
}

// dated adds a year to a stamp: the year that follows it in rest, as in "Mar 4 05:06:07 2025", or
// else one that fits the previous lines.
func (c *calendar) dated(stamp time.Time, rest string) time.Time {
	if year, ok := strings.CutPrefix(rest, " "); ok && len(year) >= 4 && digits(year[:4]) >= 1970 && (len(year) == 4 || !isWordByte(year[4])) {
		return sameDate(stamp, digits(year[:4]))
	}
	return c.withYear(stamp)
}

// findUnix returns the first number in a line that could be a time since 1970: seconds with ten
// digits and an optional fraction, or milliseconds.
func findUnix(line string) (at time.Time, ok bool) {
	const seconds, millis = 10, 13
	for i := 0; i < len(line); {
		n := len(line) - i - len(strings.TrimLeft(line[i:], "0123456789"))
		if (n == seconds || n == millis) && (i == 0 || !isWordByte(line[i-1])) {
			fraction, _ := cutFraction(line[i+n:])
			at, err := parseTime(line[i : i+n])
			return at.Add(fraction), err == nil
		}
		i += max(1, n)
	}
	return at, false
}

func isWordByte(c byte) bool {
	letter := 'a' <= c|0x20 && c|0x20 <= 'z'
	return letter || '0' <= c && c <= '9'
}
