package window_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/faulttest"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestEachIsAsOneByOne checks that AllowEach answers like successive calls of Allow, and PeekEach
// like successive calls of Peek. Many of the events occur more than once.
func TestEachIsAsOneByOne(t *testing.T) {
	t.Parallel()
	for _, countDenied := range []bool{false, true} {
		c := &clock{}
		c.set(noon)
		cfg := window.Config{Limits: parsed("2/5s", "5/1h"), CountDenied: countDenied, Now: c.now, Timeout: time.Minute}
		calls := &redistest.Calls{}
		clients := map[string]rueidis.Client{"server": redistest.NewClient(t, calls.Count), "cluster": redistest.Cluster(t)}
		each := map[string]*window.Limiter{}
		cfg.Name = redistest.Key(t)
		each["memory"] = must(window.NewLocal(cfg))
		for name, client := range clients {
			each[name] = must(window.New(window.On(client), cfg))
		}
		faulttest.AwaitGroups(t, each["server"], calls)
		one, before := must(window.NewLocal(cfg)), calls.Several.Load()
		for range 30 {
			events := make([]string, rand.IntN(60))
			for i := range events {
				events[i] = fmt.Sprint("event ", rand.IntN(20))
			}
			peeked, allowed := singly(t, one.Peek, events), singly(t, one.Allow, events)
			for name, l := range each {
				if diff := cmp.Diff(peeked, l.PeekEach(t.Context(), events)); diff != "" {
					t.Fatalf("%s, count denied %v, PeekEach:\n%s", name, countDenied, diff)
				}
				if diff := cmp.Diff(allowed, l.AllowEach(t.Context(), events)); diff != "" {
					t.Fatalf("%s, count denied %v, AllowEach:\n%s", name, countDenied, diff)
				}
			}
			c.pass(time.Duration(rand.IntN(2000)) * time.Millisecond)
		}
		if calls.Several.Load() == before {
			t.Error("weak test: no script call is for several events")
		}
	}
}

// singly calls a method once for each event.
func singly(t *testing.T, decide func(context.Context, string) (window.Decision, error), events []string) []window.Result {
	results := make([]window.Result, len(events))
	for i, event := range events {
		results[i] = window.Result{Decision: must(decide(t.Context(), event))}
	}
	return results
}

// TestEachHasItsOwnError checks that an error about one event does not affect the others.
func TestEachHasItsOwnError(t *testing.T) {
	calls := &redistest.Calls{}
	client := redistest.NewClient(t, calls.Count)
	l := must(window.New(window.On(client), window.Config{Name: redistest.Key(t), Limits: parsed("1/1h"), Timeout: time.Minute}))
	faulttest.AwaitGroups(t, l, calls)
	foreign := must(l.Inspect(t.Context(), "foreign")).Key
	do(t, client, "RPUSH", foreign, "1")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, of := range map[string]struct {
		each  func(context.Context, []string) []window.Result
		twice bool // whether an event that occurs again is allowed again
	}{"AllowEach": {l.AllowEach, false}, "PeekEach": {l.PeekEach, true}} {
		results := of.each(t.Context(), []string{name, "", "foreign", "b " + name, name})
		for i, want := range []string{"", window.ErrEmptyEvent.Error(), "WRONGTYPE key " + foreign, "", ""} {
			if err := results[i].Err; (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %d: %v, want %q", name, i, err, want)
			}
		}
		if !results[0].Allowed || !results[3].Allowed || results[4].Allowed != of.twice {
			t.Errorf("%s: %+v", name, results)
		}
		if none := of.each(t.Context(), nil); len(none) != 0 {
			t.Errorf("%s: %+v about no events", name, none)
		}
		if late := of.each(ended, []string{"c"}); !errors.Is(late[0].Err, context.Canceled) || must(l.Peek(t.Context(), "c")).Usage[0].Used != 1 {
			t.Errorf("%s, after its end: %+v", name, late)
		}
	}
}

// TestEachIsObserved checks that Observe receives each event of a batch.
func TestEachIsObserved(t *testing.T) {
	kinds := map[window.Kind]int{}
	l := must(window.NewLocal(window.Config{Name: "seen", Limits: parsed("1/1h"), Observe: func(_ context.Context, o window.Observation) {
		kinds[o.Kind]++
		if o.Units != 1 || o.Kind != window.KindPeeked && (o.Kind == window.KindAllowed) != o.Decision.Allowed {
			t.Errorf("%+v", o)
		}
	}}))
	l.AllowEach(t.Context(), []string{"a", "b", "a", ""})
	l.PeekEach(t.Context(), []string{"a", "a", ""})
	want := map[window.Kind]int{window.KindAllowed: 2, window.KindDenied: 1, window.KindRefused: 1, window.KindPeeked: 3}
	if !cmp.Equal(kinds, want) {
		t.Errorf("%v", kinds)
	}
}

// BenchmarkAllowEach measures a thousand events in one call, and one by one from one goroutine.
func BenchmarkAllowEach(b *testing.B) {
	client, events := redistest.Client(b), many(1000)
	for _, limits := range [][]string{{"1000000/1h"}, {"1000000/5s", "1000000/1h", "1000000/1d"}} {
		l := must(window.New(window.On(client), window.Config{Name: redistest.Key(b), Limits: parsed(limits...), Timeout: time.Minute}))
		b.Run(fmt.Sprintf("limits=%d/together", len(limits)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, r := range l.AllowEach(b.Context(), events) {
					if r.Err != nil || !r.Allowed {
						b.Fatal(r)
					}
				}
			}
		})
		b.Run(fmt.Sprintf("limits=%d/peeked at", len(limits)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, r := range l.PeekEach(b.Context(), events) {
					if r.Err != nil || !r.Allowed {
						b.Fatal(r)
					}
				}
			}
		})
		b.Run(fmt.Sprintf("limits=%d/one by one", len(limits)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, event := range events {
					if d, err := l.Allow(b.Context(), event); err != nil || !d.Allowed {
						b.Fatal(d, err)
					}
				}
			}
		})
	}
}
