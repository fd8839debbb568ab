package mostdenied_test

import (
	"context"
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/mostdenied"
	"github.com/slidegate/slidegate/window"
)

// TestAllocations checks that counting a denial of a listed event makes no allocation, and adds
// none to a limiter's decision.
func TestAllocations(t *testing.T) {
	if redistest.Race {
		t.Skip("under the race detector, pools drop items at random")
	}
	list, ctx := mostdenied.New(), context.Background()
	d := window.Denial{Limiter: "api", Event: "198.51.100.7", Limit: window.PerHour(5)}
	if n := testing.AllocsPerRun(1000, func() { list.Count(ctx, d) }); n != 0 {
		t.Errorf("%v allocations in Count", n)
	}
	decision := func(cfg window.Config) float64 {
		cfg.Name, cfg.Limits = "api", []window.Limit{window.PerHour(5)}
		l, err := window.NewLocal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(1000, func() { _, _ = l.Allow(ctx, "198.51.100.7") })
	}
	if with, without := decision(window.Config{OnDenied: list.Count}), decision(window.Config{}); with > without {
		t.Errorf("%v allocations in a denial, %v without the list", with, without)
	}
	if r := list.Report(); r.Denied < 1900 {
		t.Errorf("the list has %d denials", r.Denied)
	}
}
