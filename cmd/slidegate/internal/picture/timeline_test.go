package picture

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/redistest"
)

// counted is the content of a Timeline.
type counted struct {
	Width, First     int64
	Attempts         []int
	Admitted, Second []int
}

func (t *Timeline) counted() counted {
	return counted{t.width, t.first, t.attempts(), t.admitted(0), t.admitted(1)}
}

// countedExactly returns what a Timeline must hold after a list of attempts. Its width is the
// smallest one that needs no more than 400 bins.
func countedExactly(history []attempt) counted {
	least, most := history[0].second, history[0].second
	for _, a := range history {
		least, most = min(least, a.second), max(most, a.second)
	}
	c := counted{Width: 1}
	for most/c.Width-least/c.Width+1 > 400 {
		i := slices.Index(widths, c.Width)
		if c.Width *= 2; i >= 0 && i < len(widths)-1 {
			c.Width = widths[i+1]
		}
	}
	c.First = least / c.Width
	n := most/c.Width - c.First + 1
	c.Attempts, c.Admitted, c.Second = make([]int, n), make([]int, n), make([]int, n)
	for _, a := range history {
		bin := a.second/c.Width - c.First
		c.Attempts[bin]++
		for i, column := range [][]int{c.Admitted, c.Second} {
			if a.admitted[i] {
				column[bin]++
			}
		}
	}
	return c
}

// TestTimelineCountsExactly compares a Timeline to the list of all attempts.
func TestTimelineCountsExactly(t *testing.T) {
	for seed := range redistest.UnlessShort[uint64](2000, 500) {
		history := randomHistory(rand.New(rand.NewPCG(seed, 0)))
		if diff := cmp.Diff(countedExactly(history), timelineOf(history).counted()); diff != "" {
			t.Fatalf("seed %d (-exact +timeline):\n%s", seed, diff)
		}
	}
}

// TestMergeInAnyOrder splits a history over several timelines, and merges them in random order. At
// least one of them stays empty.
func TestMergeInAnyOrder(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		history := randomHistory(r)
		shares := make([][]attempt, 5)
		for _, a := range history {
			i := r.IntN(4)
			shares[i] = append(shares[i], a)
		}
		var parts []*Timeline
		for _, i := range r.Perm(len(shares)) {
			parts = append(parts, timelineOf(shares[i]))
		}
		for len(parts) > 1 {
			i := r.IntN(len(parts) - 1)
			parts[i].Merge(parts[i+1])
			parts = slices.Delete(parts, i+1, i+2)
		}
		if diff := cmp.Diff(timelineOf(history).counted(), parts[0].counted()); diff != "" {
			t.Fatalf("seed %d (-whole +merged):\n%s", seed, diff)
		}
	}
}

// TestBinsNest checks that a bin of any width consists of whole bins of the width before.
func TestBinsNest(t *testing.T) {
	for width := int64(1); width < 100*365*day; width = wider(width) {
		if wider(width)%width != 0 {
			t.Errorf("%d s are no multiple of %d s", wider(width), width)
		}
	}
}

// TestBefore1970 checks the bins of attempts before 1970.
func TestBefore1970(t *testing.T) {
	l := timelineOf([]attempt{{-1, []bool{true, true}}, {-400, []bool{true, false}}, {0, []bool{false, false}}})
	got, want := l.counted(), counted{5, -80, nil, nil, nil}
	if got.Width != want.Width || got.First != want.First || l.bins() != 81 {
		t.Errorf("%+v", got)
	}
}

func BenchmarkTimelineAdd(b *testing.B) {
	t, admitted := NewTimeline(3), []bool{true, false, true}
	at := time.Unix(1_700_000_000, 0)
	for b.Loop() {
		at = at.Add(97 * time.Millisecond)
		t.Add(at, admitted)
	}
}
