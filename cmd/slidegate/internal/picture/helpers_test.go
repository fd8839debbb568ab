package picture

import (
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/look"
	"github.com/slidegate/slidegate/internal/look/looktest"
)

const noon = 1741089600 // 2025-03-04 12:00:00 UTC

type rendered struct{ looktest.Picture }

// bars returns the areas of a colour. The first one is in the legend.
func (d rendered) bars(c look.Colour) (all []looktest.Path) {
	for _, p := range d.Paths {
		if strings.Contains(p.Style, "fill:"+c.String()) {
			all = append(all, p)
		}
	}
	return all
}

// bar returns the left and the right end of an area.
func (d rendered) bar(c look.Colour, n int) (left, right float64) {
	left, right = math.Inf(1), math.Inf(-1)
	for _, corner := range d.bars(c)[n].Corners() {
		left, right = min(left, corner[0]), max(right, corner[0])
	}
	return left, right
}

// randomWaits returns waits of all sizes up to the longest duration, or of one size.
func randomWaits(r *rand.Rand) []time.Duration {
	waits := make([]time.Duration, 1+r.IntN(200))
	size := r.IntN(64)
	for i := range waits {
		waits[i] = time.Duration(r.Int64() >> size)
		if size%2 == 0 {
			waits[i] = time.Duration(r.Int64() >> r.IntN(64))
		}
	}
	return waits
}

func waitsOf(waits []time.Duration) *Waits {
	w := &Waits{}
	for _, d := range waits {
		w.Add(d)
	}
	return w
}

// attempt is an attempt at a second since 1970, with the decisions of two sets.
type attempt struct {
	second   int64
	admitted []bool
}

func timelineOf(history []attempt) *Timeline {
	t := NewTimeline(2)
	for _, a := range history {
		t.Add(time.Unix(a.second, 999_999_999), a.admitted)
	}
	return t
}

// randomHistory returns attempts that mostly move by steps of one size, forward or back. Sometimes
// they leap to any time of the years 1970 to 6000.
func randomHistory(r *rand.Rand) []attempt {
	const end = 127_174_492_800 // 6000-01-01
	history := make([]attempt, 1+r.IntN(300))
	second, step, leaps := r.Int64N(end), int64(1)<<r.IntN(24), r.IntN(2) == 0
	for i := range history {
		if second += r.Int64N(3*step) - step; leaps && r.IntN(100) == 0 {
			second = r.Int64N(end)
		}
		second = max(0, min(second, end))
		history[i] = attempt{second, []bool{r.IntN(2) == 0, r.IntN(9) == 0}}
	}
	return history
}
