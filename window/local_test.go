package window_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestLocalForgets counts many events and lets them expire. Calls about one other event must then
// release all their memory. It runs on synctest's fake clock.
func TestLocalForgets(t *testing.T) {
	synctest.Test(t, forgets)
}

func forgets(t *testing.T) {
	l := must(window.NewLocal(window.Config{Name: "x", Limits: parsed("1/1s", "5/4s")}))
	events := redistest.UnlessShort(300_000, 50_000)
	empty := heap()
	for i := range events {
		must(l.Allow(t.Context(), fmt.Sprint("198.51.100.", i)))
	}
	full := heap() - empty
	<-time.After(4 * time.Second)
	for range 2 * events {
		must(l.Peek(t.Context(), "another"))
	}
	left := heap() - empty
	t.Logf("%d events held %d bytes each; %d bytes are left in total", events, full/events, left)
	if smallMaps := 64 * 4096; full < 100*events || left > smallMaps { // 64 shards keep a map each
		t.Errorf("%d of %d bytes are left", left, full)
	}
	runtime.KeepAlive(l)
}

// TestLocalStaysSmall keeps sending new events, as in an attack from many addresses. The limiter
// must hold hardly more events than still count.
func TestLocalStaysSmall(t *testing.T) {
	l := must(window.NewLocal(window.Config{Name: "x", Limits: parsed("5/10ms")}))
	begin := heap()
	var at []time.Time // of every event
	for range redistest.UnlessShort(400_000, 200_000) {
		at = append(at, time.Now())
		must(l.Allow(t.Context(), fmt.Sprint(len(at))))
	}
	alive := 0
	for end := at[len(at)-1]; alive < len(at) && end.Sub(at[len(at)-1-alive]) < 10*time.Millisecond; {
		alive++
	}
	if held := heap() - begin - 24*cap(at); held > 4*max(alive, 10_000)*400 {
		t.Errorf("%d bytes for %d events that are still counted", held, alive)
	}
	runtime.KeepAlive(at)
	runtime.KeepAlive(l)
}

// TestLocalWithAClockForgetsNothing checks that a limiter with Now keeps events, because its clock
// may step back. The clock jumps far ahead, other events are counted, and then the clock steps
// back.
func TestLocalWithAClockForgetsNothing(t *testing.T) {
	c := &clock{}
	c.set(noon)
	l := must(window.NewLocal(window.Config{Name: "x", Limits: parsed("1/5s"), Now: c.now}))
	must(l.Allow(t.Context(), "e"))
	c.pass(1000 * time.Hour)
	for i := range 10_000 {
		must(l.Allow(t.Context(), fmt.Sprint(i)))
	}
	c.set(noon.Add(time.Second))
	if must(l.Allow(t.Context(), "e")).Allowed {
		t.Error("e was forgotten while the clock was ahead")
	}
}

// TestLocalKeepsNothingOfLongEvents checks that memory holds only a hash of events longer than 128
// bytes, and no part of the caller's strings.
func TestLocalKeepsNothingOfLongEvents(t *testing.T) {
	l := must(window.NewLocal(window.Config{Name: "x", Limits: parsed("1/1h")}))
	begin := heap()
	for i := range 100 {
		huge := strings.Repeat(string(rune('a'+i%26)), 1<<20) + fmt.Sprint(i)
		must(l.Allow(t.Context(), huge))
		must(l.Allow(t.Context(), huge[1<<20-10:]))
		if must(l.Allow(t.Context(), huge)).Allowed {
			t.Fatal("a long event is not counted")
		}
	}
	if held := heap() - begin; held > 1<<20 {
		t.Errorf("%d bytes are held", held)
	}
	runtime.KeepAlive(l)
}
