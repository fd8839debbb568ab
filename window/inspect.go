package window

import (
	"cmp"
	"slices"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/limiter"
)

// snapshot converts the reply to the verb inspect, which the header of window.lua describes.
func (l *Limiter) snapshot(reply []int64) (Snapshot, error) {
	if len(reply) < 2 {
		return Snapshot{}, l.base.Malformed()
	}
	rows, ok := limiter.Rows(reply[2:])
	if !ok || len(rows) < len(l.limits) {
		return Snapshot{}, l.base.Malformed()
	}
	s := Snapshot{At: l.base.Clock.Time(reply[1])}
	for i := range l.limits {
		s.Limits = append(s.Limits, LimitState{Buckets: limiter.Buckets[Bucket](l.base.Clock, rows[i])})
		s.Limits[i].set(&l.limits[i], rows[i])
	}
	for _, row := range rows[len(l.limits):] {
		u := Usage{Limit: Limit{Per: clock.Milliseconds(row[0])}, Used: row[1], ResetAfter: clock.Milliseconds(row[2])}
		s.Others = append(s.Others, LimitState{u, limiter.Buckets[Bucket](l.base.Clock, row)})
	}
	slices.SortFunc(s.Others, func(a, b LimitState) int { return cmp.Compare(a.Limit.Per, b.Limit.Per) })
	return s, nil
}
