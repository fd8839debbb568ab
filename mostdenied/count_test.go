package mostdenied

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/window"
)

// deny counts a denial of an event now.
func (l *List) deny(event string) {
	l.Count(context.Background(), window.Denial{Limiter: "api", Event: event, Limit: window.PerHour(5), Decision: window.Decision{RetryAfter: time.Minute, At: time.Now()}})
}

// names returns the events of a report, in order.
func (r Report) names() (all []string) {
	for _, e := range r.Most {
		all = append(all, e.Event)
	}
	return all
}

// TestFewAreExact checks that all numbers are exact while all events are listed.
func TestFewAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, began := New(), time.Now()
		for i := range 60 {
			if i >= 40 {
				l.deny("frequent")
			}
			if i == 20 || i == 59 {
				l.deny("rare")
			}
			<-time.After(time.Second)
		}
		<-time.After(time.Minute)
		last := began.Add(59 * time.Second)
		rate := func(denials ...time.Duration) (sum float64) {
			for _, ago := range denials {
				sum += math.Exp(-float64(ago)/float64(15*time.Minute)) / 15
			}
			return math.Round(1000*sum) / 1000
		}
		all := make([]time.Duration, 20)
		for i := range all {
			all[i] = time.Duration(61+i) * time.Second
		}
		want := Report{Denied: 22, Events: 2, Most: []Entry{
			{Limiter: "api", Event: "frequent", Limit: "5/1h", Denied: 20, PerMinute: rate(all...), Since: began.Add(40 * time.Second).UTC(), Last: last.UTC(), Until: last.Add(time.Minute).UTC()},
			{Limiter: "api", Event: "rare", Limit: "5/1h", Denied: 2, PerMinute: rate(61*time.Second, 100*time.Second), Since: began.Add(20 * time.Second).UTC(), Last: last.UTC(), Until: last.Add(time.Minute).UTC()},
		}}
		if diff := cmp.Diff(want, l.Report()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestClockOfRedisStandsStill checks that times advance although d.At does not. This happens after
// the clock of Redis has stepped back.
func TestClockOfRedisStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, d := New(), window.Denial{Limiter: "api", Event: "e", Decision: window.Decision{RetryAfter: time.Minute, At: time.Now()}}
		l.Count(t.Context(), d)
		<-time.After(time.Minute)
		l.Count(t.Context(), d)
		if e := l.Report().Most[0]; !e.Last.Equal(time.Now()) || !e.Until.Equal(time.Now().Add(time.Minute)) {
			t.Errorf("%+v", e)
		}
	})
}

// TestFrequentAreListed counts streams of denials of far more events than a List holds. Each event
// that causes more than one in 4,096 of the denials must be listed, and its true number of denials
// must be between the bounds.
func TestFrequentAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still, so each denial weighs 1
		for seed := range uint64(4) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			l, truth := New(), map[string]int64{}
			skew := rand.NewZipf(rnd, 1.01+rnd.Float64()/2, 1, 100_000)
			const n = 100_000
			for range n {
				event := fmt.Sprint(skew.Uint64())
				truth[event]++
				l.deny(event)
			}
			listed := map[string]event{}
			for _, e := range l.events {
				listed[e.event] = *e
			}
			if r := l.Report(); r.Denied != n || r.Events != len(listed) || r.Events > capacity || len(r.Most) != reported {
				t.Fatalf("seed %d: %d denials, %d events, %d reported", seed, r.Denied, r.Events, len(r.Most))
			}
			for event, denials := range truth {
				if e, has := listed[event]; !has && denials > n/capacity {
					t.Errorf("seed %d: %s with %d of %d denials is not listed", seed, event, denials, n)
				} else if has && (e.denied > denials || int64(e.weight) < denials || int64(e.weight-e.inherited) != e.denied) {
					t.Errorf("seed %d: %s had %d denials: %+v", seed, event, denials, e)
				}
			}
		}
	})
}

// TestYesterday checks that yesterday's attacker is not at the top, despite many more denials, and
// leaves the list an hour after its last denial.
func TestYesterday(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		for range 10_000 {
			l.deny("attacker")
		}
		<-time.After(24*time.Hour - 59*time.Minute)
		l.deny("attacker")
		<-time.After(59 * time.Minute)
		l.deny("today")
		if diff := cmp.Diff([]string{"today", "attacker"}, l.Report().names()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		<-time.After(2 * time.Minute)
		if r := l.Report(); r.Events != 1 || r.Denied != 10_002 || r.Most[0].Event != "today" {
			t.Errorf("%+v", r)
		}
	})
}

// TestRate checks that the reported rate is that of a steady client, over weeks and after a
// silence.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		for _, silence := range []time.Duration{0, time.Hour, 6 * 24 * time.Hour, 6 * 24 * time.Hour, 90 * 24 * time.Hour} {
			<-time.After(silence)
			for range 2 * 3600 {
				l.deny("steady")
				<-time.After(time.Second)
			}
			if e := l.Report().Most[0]; e.PerMinute < 59 || e.PerMinute > 61 {
				t.Errorf("after %v: %v a minute, not 60", silence, e.PerMinute)
			}
		}
	})
}

// TestManyOnce checks that a million events that are denied once do not hide an event that is
// denied more often, and take little memory.
func TestManyOnce(t *testing.T) {
	l := New()
	l.deny("frequent")
	before := heap()
	many := int64(1_000_000)
	if testing.Short() {
		many = 100_000
	}
	for i := range many {
		if l.deny(fmt.Sprint("attacker ", i)); i%500 == 0 {
			l.deny("frequent")
		}
	}
	grown := heap() - before
	r := l.Report()
	if r.Denied != many+many/500+1 || r.Events > capacity || r.Most[0].Event != "frequent" || r.Most[0].Denied != many/500+1 || r.Most[1].Denied > 100 {
		t.Errorf("%d denials, %d events; first %+v and %+v", r.Denied, r.Events, r.Most[0], r.Most[1])
	}
	if grown > 3<<20 {
		t.Errorf("the list has grown by %d bytes", grown)
	}
	t.Logf("the list has grown by %d bytes", grown)
	runtime.KeepAlive(l)
}

// heap returns the bytes in use on the heap.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestConcurrently checks that no denial is lost when many goroutines count at once, and that
// reports can be made at the same time.
func TestConcurrently(t *testing.T) {
	var all sync.WaitGroup
	l := New()
	for g := range 8 {
		all.Go(func() {
			for i := range 5000 {
				l.deny(fmt.Sprint(i % (10 * (g + 1))))
			}
		})
	}
	for range 20 {
		l.Report()
	}
	all.Wait()
	r, sum := l.Report(), int64(0)
	for _, e := range l.events {
		sum += e.denied
	}
	if r.Denied != 40_000 || sum != 40_000 || r.Events != 80 || len(r.Most) != reported || r.Most[0].Denied < 8*5000/80 {
		t.Errorf("%d denials, %d of %d events; %+v", r.Denied, sum, r.Events, r.Most[0])
	}
}

// TestLimits checks how limits are formatted.
func TestLimits(t *testing.T) {
	for want, limit := range map[string]window.Limit{"": {}, "1000/1h": {Max: 1000, Per: time.Hour, Resolution: time.Second}, "5 at once": {Max: 5}} {
		if got := limitText(limit); got != want {
			t.Errorf("%v: %q, not %q", limit, got, want)
		}
	}
}
