package window_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestFull checks that a new event for which there is no room is denied or allowed, as configured,
// and not counted. Known events must not be affected.
func TestFull(t *testing.T) {
	for _, allow := range []bool{false, true} {
		full := 0
		l := must(window.NewLocal(window.Config{Name: "full", Limits: parsed("2/1h", "9/1d"), MaxEvents: 10, AllowWhenFull: allow, Observe: func(_ context.Context, o window.Observation) {
			if o.Trace.Full {
				full++
			}
		}}))
		for i := range 10 {
			must(l.Allow(t.Context(), fmt.Sprint("known ", i)))
		}
		for range 3 {
			d := must(l.Allow(t.Context(), "new"))
			if d.Allowed != allow || d.Granted != 0 != allow || d.Counted != 0 || len(d.Usage) != 2 || d.Usage[0].Used != 0 || (d.RetryAfter == time.Second) == allow {
				t.Errorf("allow when full %v: %+v", allow, d)
			}
		}
		if d := must(l.Allow(t.Context(), "known 3")); !d.Allowed || d.Usage[0].Used != 2 {
			t.Errorf("a known event: %+v", d)
		}
		if d := must(l.Allow(t.Context(), "known 3")); d.Allowed || full != 3 {
			t.Errorf("%d seen, a known event beyond its limit: %+v", full, d)
		}
		if err := l.Reset(t.Context(), "known 5"); err != nil {
			t.Error(err)
		}
		if d := must(l.Allow(t.Context(), "new")); !d.Allowed || d.Counted != 1 {
			t.Errorf("after a Reset: %+v", d)
		}
	}
}

// TestFullVerbs checks the answers to all verbs when there is no room. Units that were already used
// must never be lost without an error.
func TestFullVerbs(t *testing.T) {
	for _, allow := range []bool{false, true} {
		l := must(window.NewLocal(window.Config{Name: "full", Limits: parsed("5/1h"), MaxEvents: 1, AllowWhenFull: allow}))
		must(l.Allow(t.Context(), "known"))
		if d := must(l.Peek(t.Context(), "new")); d.Allowed != allow {
			t.Errorf("allow when full %v: a peek: %+v", allow, d)
		}
		if d := must(l.AllowUpTo(t.Context(), "new", 1000)); d.Allowed != allow || allow && d.Granted != 5 {
			t.Errorf("allow when full %v: a part: %+v", allow, d)
		}
		if _, err := l.Charge(t.Context(), "new", 3); err == nil || !strings.Contains(err.Error(), "MaxEvents events; raise it") {
			t.Errorf("allow when full %v: a charge: %v", allow, err)
		}
		if d := must(l.Charge(t.Context(), "known", 3)); d.Counted != 3 {
			t.Errorf("allow when full %v: a charge of a known event: %+v", allow, d)
		}
	}
}

// TestFullUnderLoad checks that peeks at new events and Resets of unknown ones take up no room, not
// even for a moment.
func TestFullUnderLoad(t *testing.T) {
	l := must(window.NewLocal(window.Config{Name: "full", Limits: parsed("5/1h"), MaxEvents: 50}))
	for i := range 49 {
		must(l.Allow(t.Context(), fmt.Sprint("known ", i)))
	}
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				must(l.Peek(t.Context(), fmt.Sprint("peeked ", i)))
				if err := l.Reset(t.Context(), fmt.Sprint("other ", i)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for i := range redistest.UnlessShort(20_000, 5000) {
		if d := must(l.Allow(t.Context(), "e")); !d.Allowed {
			t.Fatalf("%d: %+v", i, d)
		}
		if err := l.Reset(t.Context(), "e"); err != nil {
			t.Error(err)
		}
	}
	close(done)
	group.Wait()
}

// TestForgottenMakeRoom checks that expired events make room, even if Config.Now is set.
func TestForgottenMakeRoom(t *testing.T) {
	c := &clock{}
	c.set(noon)
	l := must(window.NewLocal(window.Config{Name: "full", Limits: parsed("1/1m"), MaxEvents: 50, Now: c.now}))
	for round := range 20 {
		for i := range 50 {
			if d := must(l.Allow(t.Context(), fmt.Sprint(round, " ", i))); !d.Allowed {
				t.Fatalf("round %d, %d: %+v", round, i, d)
			}
		}
		if d := must(l.Allow(t.Context(), "one more")); d.Allowed {
			t.Fatalf("round %d: %+v", round, d)
		}
		c.pass(time.Minute)
	}
}

// TestFallbackIsBounded checks that a Fallback without MaxEvents holds 1,048,576 events.
func TestFallbackIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("creates a million events")
	}
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1/1h")}))
	must(window.New(window.On(redistest.Client(t)), window.Config{Name: "bounded", Limits: parsed("1/1h"), Fallback: local, Timeout: time.Minute}))
	for i := range 1 << 20 {
		if !must(local.Allow(t.Context(), fmt.Sprint(i))).Allowed {
			t.Fatalf("event %d finds no room", i)
		}
	}
	if must(local.Allow(t.Context(), "another")).Allowed {
		t.Error("there is room for more")
	}
}

// TestFlood lets four senders send 33,000 new addresses per second, for eight seconds of fake time,
// to a limiter with room for 100,000 events. Memory must not grow once the limiter is full, and
// known events must keep their counts.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, known = 100_000, 1000
		seconds := redistest.UnlessShort(8, 5)
		l := must(window.NewLocal(window.Config{Name: "flood", Limits: parsed("5/1h"), MaxEvents: most}))
		for i := range known {
			must(l.AllowN(t.Context(), fmt.Sprint("known ", i), 4))
		}
		var denied atomic.Int64
		var full, end int
		for second := range seconds {
			flood(t, l, second, &denied)
			if end = heap(); second == 3 {
				full = end
			}
			<-time.After(time.Second)
		}
		if want := int64(seconds*4*8333 - most + known); denied.Load() != want || end > full+full/10 {
			t.Errorf("%d denied, not %d; %d bytes when full, %d in the end", denied.Load(), want, full, end)
		}
		for i := range known {
			if d := must(l.AllowN(t.Context(), fmt.Sprint("known ", i), 1)); !d.Allowed || d.Remaining != 0 {
				t.Fatalf("known %d: %+v", i, d)
			}
		}
		runtime.KeepAlive(l)
	})
}

// flood sends the new addresses of the given second.
func flood(t *testing.T, l *window.Limiter, second int, denied *atomic.Int64) {
	var group sync.WaitGroup
	for sender := range 4 {
		group.Go(func() {
			for i := range 8333 {
				if !must(l.Allow(t.Context(), fmt.Sprint(second, " ", sender, " ", i))).Allowed {
					denied.Add(1)
				}
			}
		})
	}
	group.Wait()
}
