package window_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestInspectShowsOthers inspects an event with a limiter that has one of three limits. The
// snapshot must show the units under the other two limits as their own callers see them, except for
// values that depend on Max.
func TestInspectShowsOthers(t *testing.T) {
	now := time.Date(2025, 3, 4, 14, 0, 0, 0, time.UTC)
	cfg := window.Config{
		Name:   redistest.Key(t),
		Limits: []window.Limit{{Max: 5, Per: 10 * time.Second}, window.PerHour(20), {Max: 1000, Per: 36_525 * 24 * time.Hour}},
		Now:    func() time.Time { return now },
	}
	three := must(window.New(window.On(redistest.Client(t)), cfg))
	must(three.AllowN(t.Context(), "e", 2))
	now = now.Add(4 * time.Second)
	must(three.Allow(t.Context(), "e"))
	cfg.Limits = cfg.Limits[1:2]
	one := must(window.New(window.On(redistest.Client(t)), cfg))

	for _, now = range []time.Time{now, now.Add(7 * time.Second), now.Add(time.Hour), now.Add(-time.Minute)} {
		all := must(three.Inspect(t.Context(), "e"))
		var want []window.LimitState
		for _, s := range []window.LimitState{all.Limits[0], all.Limits[2]} {
			s.Limit, s.Remaining, s.RetryAfter = window.Limit{Per: s.Limit.Per}, 0, 0
			want = append(want, s)
		}
		got := must(one.Inspect(t.Context(), "e"))
		if diff := cmp.Diff(want, got.Others); diff != "" || len(all.Others) > 0 {
			t.Errorf("%v: %v next to three limits, and next to one (-want +got)\n%s", now, all.Others, diff)
		}
		if diff := cmp.Diff(all.Limits[1:2], got.Limits); diff != "" {
			t.Errorf("%v (-three +one)\n%s", now, diff)
		}
	}
}
