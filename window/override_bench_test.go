package window_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// withOverrides returns a limiter that has many overrides, but none for the event "198.51.100.7".
func withOverrides(tb testing.TB, name string, many int, on bool, secret []byte) *window.Limiter {
	tb.Helper()
	client := redistest.Client(tb)
	l := must(window.New(window.On(client), window.Config{Name: name, Limits: parsed("1000000000/1h"), Overrides: on, Secret: secret, Timeout: time.Minute}))
	for i := range many {
		if err := l.Override(tb.Context(), fmt.Sprint("event-", i), window.Override{Mode: window.OverrideBlock, Why: "on call"}, time.Hour); err != nil {
			tb.Fatal(err)
		}
	}
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for many > 0 && must(l.Peek(tb.Context(), fmt.Sprint("event-", many-1))).Override == "" {
		<-pace.C
	}
	return l
}

// TestOverrideAllocations checks that Config.Overrides adds no allocation to a decision, whether no
// overrides or 1,000 are set, and that a blocked decision makes two allocations: its limiter and
// its Usage.
func TestOverrideAllocations(t *testing.T) {
	if redistest.Race {
		t.Skip("under the race detector, pools drop items at random")
	}
	count := func(l *window.Limiter, event string) float64 {
		return testing.AllocsPerRun(1000, func() { must(l.Allow(t.Context(), event)) })
	}
	without := count(withOverrides(t, redistest.Key(t), 0, false, nil), "198.51.100.7")
	for _, many := range []int{0, 1000} {
		l := withOverrides(t, redistest.Key(t), many, true, nil)
		if with := count(l, "198.51.100.7"); with > without {
			t.Errorf("%v allocations in a decision with %d overrides, %v without", with, many, without)
		}
		if with := count(l, "event-0"); many > 0 && with > 2 {
			t.Errorf("%v allocations in a block", with)
		}
	}
}

// BenchmarkOverrideLookup measures what Config.Overrides adds to a decision: the lookup of the
// event's override.
func BenchmarkOverrideLookup(b *testing.B) {
	for _, of := range []struct {
		name   string
		many   int
		secret []byte
	}{{"none", 0, nil}, {"1000", 1000, nil}, {"1000 and a Secret", 1000, []byte("sixteen bytes...")}} {
		l := withOverrides(b, "lookup"+redistest.Key(b), of.many, true, of.secret)
		b.Run(of.name, func(b *testing.B) {
			for b.Loop() {
				if l.Under("198.51.100.7") {
					b.Fatal("it has one")
				}
			}
		})
	}
}
