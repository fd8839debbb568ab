package window

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/engine"
)

// errNoSnapshot is returned for a reply that no Slidegate script would send.
var errNoSnapshot = errors.New("the reply to inspect does not match the header of window.lua; remove the script that Redis holds under this hash")

// snapshot converts the reply to the verb inspect, which the header of window.lua describes.
func (l *Limiter) snapshot(reply []int64) (Snapshot, error) {
	if len(reply) < 2 {
		return Snapshot{}, errNoSnapshot
	}
	rows, ok := engine.Rows(reply[2:])
	if !ok || len(rows) < len(l.limits) {
		return Snapshot{}, errNoSnapshot
	}
	s := Snapshot{At: utc(reply[1])}
	for i := range l.limits {
		s.Limits = append(s.Limits, LimitState{Buckets: newBuckets(rows[i])})
		s.Limits[i].set(&l.limits[i], rows[i])
	}
	for _, row := range rows[len(l.limits):] {
		s.Others = append(s.Others, LimitState{otherUsage(row), newBuckets(row)})
	}
	slices.SortFunc(s.Others, func(a, b LimitState) int { return cmp.Compare(a.Limit.Per, b.Limit.Per) })
	return s, nil
}

// otherUsage returns what a row says about a window of other callers: its Per, the units used, and
// the wait until they are forgotten.
func otherUsage(row []int64) Usage {
	return Usage{Limit: Limit{Per: clock.Milliseconds(row[0])}, Used: row[1], ResetAfter: clock.Milliseconds(row[2])}
}

// newBuckets returns the buckets listed in a row.
func newBuckets(row []int64) (buckets []Bucket) {
	for pairs := row[4:]; len(pairs) > 0; pairs = pairs[2:] {
		buckets = append(buckets, Bucket{Last: utc(pairs[0]), Units: pairs[1]})
	}
	return buckets
}

func utc(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
