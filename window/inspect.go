package window

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
)

// errNoSnapshot is returned for a reply that no Slidegate script gives.
var errNoSnapshot = errors.New("the reply to inspect is not as the head of window.lua says; remove the script that Redis holds under this hash")

// snapshot returns the state in a reply to inspect, whose form is described at the head of
// window.lua.
func (l *Limiter) snapshot(reply []int64) (Snapshot, error) {
	if len(reply) < 2 {
		return Snapshot{}, errNoSnapshot
	}
	s, rest := Snapshot{At: utc(reply[1])}, reply[2:]
	for len(rest) > 0 || len(s.Limits) < len(l.limits) {
		if len(rest) < 4 || rest[3] < 0 || rest[3] > int64(len(rest)-4)/2 {
			return Snapshot{}, errNoSnapshot
		}
		if i := len(s.Limits); i < len(l.limits) {
			s.Limits = append(s.Limits, LimitState{Buckets: newBuckets(rest)})
			s.Limits[i].set(&l.limits[i], rest)
		} else {
			s.Others = append(s.Others, LimitState{otherUsage(rest), newBuckets(rest)})
		}
		rest = rest[4+2*rest[3]:]
	}
	slices.SortFunc(s.Others, func(a, b LimitState) int { return cmp.Compare(a.Limit.Per, b.Limit.Per) })
	return s, nil
}

// otherUsage returns the known fields of a window that no limit has: its Per, units used, and the
// wait until they are forgotten.
func otherUsage(row []int64) Usage {
	return Usage{Limit: Limit{Per: clock.Milliseconds(row[0])}, Used: row[1], ResetAfter: clock.Milliseconds(row[2])}
}

// newBuckets returns the buckets of a row. A row holds three integers, the number of buckets, and
// then the time and units of each.
func newBuckets(row []int64) (buckets []Bucket) {
	for pairs := row[4 : 4+2*row[3]]; len(pairs) > 0; pairs = pairs[2:] {
		buckets = append(buckets, Bucket{Last: utc(pairs[0]), Units: pairs[1]})
	}
	return buckets
}

func utc(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
