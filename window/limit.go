package window

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/limiter"
)

// Limit is a rate limit: it allows at most Max units in any interval of length Per.
//
// A limit whose Max is at most 60 is exact: it forgets a unit as soon as the unit is Per old. A
// limit with a larger Max, or one that counts denied attempts, counts in buckets of Per/60, rounded
// up to a whole millisecond. It forgets a whole bucket when the bucket's last event is Per old. The
// first units of a bucket are therefore forgotten late, by up to the width of a bucket: under 61 a
// day, by up to 24 minutes. No limit ever allows more than Max.
//
// Set Resolution to change the width of the buckets: wider buckets save memory, finer ones forget
// sooner, and 1 ms is exact. A limit may need at most 256 buckets, so 200 an hour can be exact, and
// 1000 an hour can have buckets of 15 s. Charges can double the number of buckets.
type Limit struct {
	Max        int64         // most units allowed in any interval of length Per, from 1 to 2^53
	Per        time.Duration // length of the window, in whole milliseconds, from one to 100 years
	Resolution time.Duration // width of a bucket, in whole milliseconds, from 1 ms to Per; 0 means the default described here
}

const (
	day       = 24 * time.Hour
	maxUnits  = 1 << 53 // larger integers are not all exact as doubles, which the script uses
	exactMax  = 60      // up to this Max, a limit is exact by default
	maxBucket = 256     // most buckets that a limit may hold
)

// PerSecond returns a limit of the given number of units in any second.
func PerSecond(units int64) Limit { return Limit{Max: units, Per: time.Second} }

// PerMinute returns a limit of the given number of units in any minute.
func PerMinute(units int64) Limit { return Limit{Max: units, Per: time.Minute} }

// PerHour returns a limit of the given number of units in any hour.
func PerHour(units int64) Limit { return Limit{Max: units, Per: time.Hour} }

// PerDay returns a limit of the given number of units in any 24 hours.
func PerDay(units int64) Limit { return Limit{Max: units, Per: day} }

// Every returns a limit of one unit in any interval of length d: a minimum distance between events.
func Every(d time.Duration) Limit { return Limit{Max: 1, Per: d} }

// ParseLimit parses a limit in the form "5/1h": Max, a slash, Per. Durations are written as in Go,
// but can also contain days and weeks: "90s", "1h30m", "1d12h", "2w". A unit without a number means
// one of that unit, as in "5/h". A Resolution follows an @, as in "5/1h@10m". ParseLimit returns an
// error for a limit that New would reject in a Config without CountDenied.
func ParseLimit(s string) (Limit, error) {
	l, err := parseLimit(s)
	if err == nil {
		err = l.check(false)
	}
	if err != nil {
		return Limit{}, fmt.Errorf("limit %q: %w", s, err)
	}
	return l, nil
}

func parseLimit(s string) (Limit, error) {
	count, window, found := strings.Cut(s, "/")
	if !found {
		return Limit{}, errors.New("has no slash; write units per time, as in 5/1h")
	}
	per, width, hasWidth := strings.Cut(window, "@")
	var l Limit
	var err error
	if l.Max, err = strconv.ParseInt(count, 10, 64); err != nil {
		return l, fmt.Errorf("%q is not a number of units from 1 to 2^53; write units per time, as in 5/1h", count)
	}
	if l.Per, err = parseDuration(per); err != nil {
		return l, err
	}
	if !hasWidth {
		return l, nil
	}
	if l.Resolution, err = parseDuration(width); err == nil && l.Resolution == 0 {
		err = errors.New("has a Resolution of 0; leave out the @ for the default")
	}
	if l.Max > exactMax && l.Resolution == l.defaultResolution() {
		l.Resolution = 0 // as String shows it for 0
	}
	return l, err
}

// parseDuration parses a duration like time.ParseDuration. It also accepts weeks and days, and a
// unit without a number, which means one of that unit.
func parseDuration(s string) (time.Duration, error) {
	invalid := func() (time.Duration, error) {
		return 0, fmt.Errorf("%q is not a duration; write one as 500ms, 5s, 1m30s, 1h, 1d12h or 2w", s)
	}
	rest, days := s, time.Duration(0)
	if rest != "" && !strings.ContainsRune(".+-0123456789", rune(rest[0])) {
		rest = "1" + rest
	}
	for _, unit := range []struct {
		name string
		span time.Duration
	}{{"w", 7 * day}, {"d", day}} {
		count, after, found := strings.Cut(rest, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil || n < 0 || n > int64((math.MaxInt64-days)/unit.span) {
			return invalid()
		}
		days, rest = days+time.Duration(n)*unit.span, after
	}
	if rest == "" && s != "" { // there are only weeks and days
		rest = "0s"
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || days > math.MaxInt64-d {
		return invalid()
	}
	return days + d, nil
}

// String formats the limit so that ParseLimit can read it. It uses days but not weeks: "10/7d". It
// includes the bucket width in force unless that is 1 ms. If Resolution is 0, that is the default
// width in a limiter that does not count denied attempts.
func (l Limit) String() string {
	if l.Resolution == 0 && l.Max <= exactMax {
		return l.Label()
	}
	return l.Label() + "@" + clock.Format(l.resolution(false))
}

// Label formats the limit without its Resolution, such as "1000/1m": for header fields, metrics and
// messages. The labels of one limiter differ, since no two of its limits have the same Per.
func (l Limit) Label() string {
	return strconv.FormatInt(l.Max, 10) + "/" + clock.Format(l.Per)
}

// MarshalText formats the limit as String does, for flags, JSON, YAML and environment variables.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText parses the limit as ParseLimit does.
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := ParseLimit(string(text))
	if err == nil {
		*l = parsed
	}
	return err
}

// resolution returns the bucket width in force.
func (l Limit) resolution(countDenied bool) time.Duration {
	switch {
	case l.Resolution != 0:
		return l.Resolution
	case l.Max <= exactMax && !countDenied:
		return time.Millisecond
	}
	return l.defaultResolution()
}

// coarse returns the bucket width for units that Max does not bound: charges and counted denials.
// It keeps the limit within maxBucket.
func (l Limit) coarse() time.Duration { return max(l.resolution(true), l.finest()) }

// defaultResolution returns Per/60, rounded up to a whole millisecond.
func (l Limit) defaultResolution() time.Duration {
	return clock.Milliseconds((l.Per.Milliseconds() + 59) / 60)
}

// check returns an error that says what is wrong with the limit, and what to do about it.
func (l Limit) check(countDenied bool) error {
	if err := limiter.CheckRange(l.Max, maxUnits, "2^53", l.Per); err != nil {
		return err
	}
	switch width := l.resolution(countDenied); {
	case width < time.Millisecond || width%time.Millisecond != 0 || width > l.Per:
		return fmt.Errorf("a Resolution of %v; choose whole milliseconds up to the Per of %v, or 0", width, l.Per)
	case l.buckets(countDenied) > maxBucket:
		return fmt.Errorf("a Resolution of %v, so up to %d buckets; choose one of at least %v for at most %d buckets",
			width, l.buckets(countDenied), l.finest(), maxBucket)
	}
	return nil
}

// buckets returns how many buckets the limit can hold at once.
func (l Limit) buckets(countDenied bool) int64 {
	width := l.resolution(countDenied)
	slots := int64((l.Per+width-1)/width) + 1
	if countDenied {
		return slots
	}
	return min(l.Max, slots)
}

// finest returns the finest Resolution that keeps the limit within maxBucket buckets, whatever its
// Max.
func (l Limit) finest() time.Duration {
	return clock.Milliseconds((l.Per.Milliseconds() + maxBucket - 2) / (maxBucket - 1))
}
