package inflight_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/window"
)

// full is a client of a Redis in which the only place of each event is taken until the time freed.
type full struct {
	freed time.Time
	asked []time.Time
}

// Send answers calls of acquire.
func (f *full) Send(_ context.Context, calls []*connection.ScriptCall) {
	now := time.Now()
	for _, c := range calls {
		if f.asked = append(f.asked, now); now.Before(f.freed) {
			c.Answer([]int64{0, now.UnixMicro(), 1, 0, 60_000}, nil)
		} else {
			c.Answer([]int64{1, now.UnixMicro(), 1, now.UnixMicro(), 0}, nil)
		}
	}
}

// Close does nothing.
func (f *full) Close() {}

// TestAsksEvery50ms checks that a waiter asks Redis every 50 ms ± 20 %, so that it gets a place that
// another process releases within that time.
func TestAsksEvery50ms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		freed := time.Now().Add(10 * time.Second)
		f := &full{freed: freed}
		l := must(inflight.New((*window.Connection)(connection.On(f)), inflight.Config{Name: "jobs", Max: 1}))
		must(l.Acquire(t.Context(), "e"))
		if late := time.Since(freed); late > 60*time.Millisecond {
			t.Errorf("the place was taken after %v", late)
		}
		var pauses []time.Duration
		for i, at := range f.asked[1:] {
			pauses = append(pauses, at.Sub(f.asked[i]))
		}
		if least, most := slices.Min(pauses), slices.Max(pauses); least < 40*time.Millisecond || least > 45*time.Millisecond || most < 55*time.Millisecond || most > 60*time.Millisecond {
			t.Errorf("it asked every %v to %v", least, most)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
