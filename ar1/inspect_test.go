package ar1_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestInspectShowsOthers inspects an event with a limiter that has one of two limits. The snapshot
// must show the level under the other limit as its own caller sees it, except for values that
// depend on Max.
func TestInspectShowsOthers(t *testing.T) {
	now := time.Date(2025, 3, 4, 14, 0, 0, 0, time.UTC)
	cfg := ar1.Config{Name: redistest.Key(t), Limits: []window.Limit{window.PerHour(20), {Max: 5, Per: 10 * time.Second}}, Timeout: time.Minute, Now: func() time.Time { return now }}
	two := must(ar1.New(window.On(redistest.Client(t)), cfg))
	must(two.AllowN(t.Context(), "e", 2))
	cfg.Limits = cfg.Limits[:1]
	one := must(ar1.New(window.On(redistest.Client(t)), cfg))
	now = now.Add(7 * time.Second)
	want := must(two.Inspect(t.Context(), "e"))
	other := want.Limits[1]
	other.Usage = window.Usage{Limit: window.Limit{Per: other.Limit.Per}, ResetAfter: other.ResetAfter}
	want.Limits, want.Others = want.Limits[:1], []ar1.LimitState{other}
	if diff := cmp.Diff(want, must(one.Inspect(t.Context(), "e"))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
