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

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestEachIsAsOneByOne: batches of events, many of them more than once, are decided as by calls of Allow one after the other.
func TestEachIsAsOneByOne(t *testing.T) {
	t.Parallel()
	for _, countDenied := range []bool{false, true} {
		c := &clock{}
		c.set(noon)
		cfg := window.Config{Limits: parsed("2/5s", "5/1h"), CountDenied: countDenied, Now: c.now}
		clients := map[string]rueidis.Client{"server": redistest.Client(t), "cluster": redistest.Cluster(t)}
		each := map[string]*window.Limiter{}
		cfg.Name = redistest.Key(t)
		each["memory"] = must(window.NewLocal(cfg))
		for name, client := range clients {
			each[name] = must(window.New(client, cfg))
		}
		one := must(window.NewLocal(cfg))
		for range 30 {
			events := make([]string, rand.IntN(60))
			for i := range events {
				events[i] = fmt.Sprint("event ", rand.IntN(20))
			}
			want := make([]window.Result, len(events))
			for i, event := range events {
				want[i] = window.Result{Decision: must(one.Allow(t.Context(), event))}
			}
			for name, l := range each {
				if diff := cmp.Diff(want, l.AllowEach(t.Context(), events)); diff != "" {
					t.Fatalf("%s, count denied %v:\n%s", name, countDenied, diff)
				}
			}
			c.pass(time.Duration(rand.IntN(2000)) * time.Millisecond)
		}
	}
}

// TestEachHasItsOwnError: what is wrong with one event is no matter to the others.
func TestEachHasItsOwnError(t *testing.T) {
	client := redistest.Client(t)
	l := must(window.New(client, window.Config{Name: redistest.Key(t), Limits: parsed("1/1h")}))
	foreign := must(l.Inspect(t.Context(), "foreign")).Key
	do(t, client, "RPUSH", foreign, "1")
	results := l.AllowEach(t.Context(), []string{"a", "", "foreign", "b", "a"})
	for i, want := range []string{"", window.ErrEmptyEvent.Error(), "WRONGTYPE key " + foreign, "", ""} {
		if err := results[i].Err; (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %q", i, err, want)
		}
	}
	if !results[0].Allowed || !results[3].Allowed || results[4].Allowed {
		t.Errorf("%+v", results)
	}
	if none := l.AllowEach(t.Context(), nil); len(none) != 0 {
		t.Errorf("%+v about no events", none)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if late := l.AllowEach(ctx, []string{"c"}); !errors.Is(late[0].Err, context.Canceled) || must(l.Peek(t.Context(), "c")).Usage[0].Used != 1 {
		t.Errorf("after its end: %+v", late)
	}
}

// many are so many events.
func many(n int) []string {
	events := make([]string, n)
	for i := range events {
		events[i] = fmt.Sprint("event-", i)
	}
	return events
}

// TestEachAfterScriptFlush, on one node of a cluster, on all, and on a server, while others load it again: each is decided, and
// those of one event in order.
func TestEachAfterScriptFlush(t *testing.T) {
	cluster, server := redistest.Cluster(t), redistest.Start(t).Client(t)
	for name, client := range map[string]rueidis.Client{"cluster": cluster, "server": server} {
		t.Run(name, func(t *testing.T) {
			cfg := window.Config{Name: redistest.Key(t), Limits: parsed("2/1h")}
			l := must(window.New(client, cfg))
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range redistest.UnlessShort(300, 50) {
					for _, node := range client.Nodes() {
						node.Do(context.Background(), node.B().ScriptFlush().Build())
					}
				}
			}()
			for round, flushing := 0, true; flushing; round++ {
				select {
				case <-done:
					flushing = false
				default:
				}
				events := many(50)
				for i := range events {
					events[i] += fmt.Sprint(" ", round)
				}
				for i, r := range l.AllowEach(t.Context(), append(append(events, events...), events...)) {
					if r.Err != nil || r.Allowed != (i < 100) || r.Usage[0].Used != int64(min(2, 1+i/50)) {
						t.Fatalf("round %d, %d: %+v", round, i, r)
					}
				}
			}
		})
	}
}

// TestEachInTime: a server that hangs costs one Timeout, however many events there are, and a Fallback decides.
func TestEachInTime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var seen outages
	cfg := window.Config{Name: "each", Limits: parsed("1/1h"), Timeout: troubleTimeout, Observe: seen.observe}
	l := must(window.New(server.Client(t), cfg))
	cfg.Fallback = must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1/1h")}))
	degraded := must(window.New(server.Client(t), cfg))
	answered(t, l, "warm")
	server.Pause(t)
	events, begin := many(redistest.UnlessShort(10_000, 4000)), time.Now()
	results := l.AllowEach(t.Context(), events)
	if took := time.Since(begin); took < troubleTimeout || took > troubleTimeout+slack {
		t.Errorf("took %v", took)
	}
	uncertain, unsent := 0, 0
	for _, r := range results {
		if errors.Is(r.Err, window.ErrUncertain) {
			uncertain++
		} else if errors.Is(r.Err, window.ErrOutage) {
			unsent++
		}
	}
	if uncertain == 0 || uncertain > 4*512 || uncertain+unsent != len(events) { // at most four senders hang, with a batch each
		t.Errorf("%d may have been counted, %d were not", uncertain, unsent)
	}
	for i, r := range degraded.AllowEach(t.Context(), append(events[:10:10], events[:10]...)) {
		if r.Err != nil || !r.Degraded || r.Allowed != (i < 10) {
			t.Errorf("%d: %+v", i, r)
		}
	}
	server.Resume(t)
	backAfter(t, l)
	patient := must(window.New(server.Client(t), window.Config{Name: "patient", Limits: parsed("1/1h"), Timeout: -1}))
	for i, r := range patient.AllowEach(t.Context(), append(events, events...)) {
		if r.Err != nil || r.Allowed != (i < len(events)) {
			t.Fatalf("%d: %+v", i, r)
		}
	}
}

// TestEachOnDeadServer: a server that refuses connections costs one Timeout, however many events there are, and no event is uncertain.
func TestEachOnDeadServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	const timeout = 3 * time.Second // repetition ends after one; so a machine may stall for two until a dial seems to hang
	l := must(window.New(client, window.Config{Name: "each", Limits: parsed("1/1h"), Timeout: timeout}))
	server.Kill(t)
	begin := time.Now()
	for i, r := range l.AllowEach(t.Context(), many(40_000)) {
		if !errors.Is(r.Err, window.ErrOutage) || errors.Is(r.Err, window.ErrUncertain) {
			t.Fatalf("%d: %+v", i, r)
		}
	}
	if took := time.Since(begin); took > 2*timeout { // ten rounds take longer, a second each
		t.Errorf("took %v, with a Timeout of %v", took, timeout)
	}
}

// TestEachIsObserved, event by event.
func TestEachIsObserved(t *testing.T) {
	kinds := map[window.Kind]int{}
	l := must(window.NewLocal(window.Config{Name: "seen", Limits: parsed("1/1h"), Observe: func(_ context.Context, o window.Observation) {
		kinds[o.Kind]++
		if o.Units != 1 || (o.Kind == window.Allowed) != o.Decision.Allowed {
			t.Errorf("%+v", o)
		}
	}}))
	l.AllowEach(t.Context(), []string{"a", "b", "a", ""})
	if want := (map[window.Kind]int{window.Allowed: 2, window.Denied: 1, window.Refused: 1}); !cmp.Equal(kinds, want) {
		t.Errorf("%v", kinds)
	}
}

// BenchmarkAllowEach is a thousand events in one call, and one by one from one goroutine; per event.
func BenchmarkAllowEach(b *testing.B) {
	client, events := redistest.Client(b), many(1000)
	for _, limits := range [][]string{{"1000000/1h"}, {"1000000/5s", "1000000/1h", "1000000/1d"}} {
		l := must(window.New(client, window.Config{Name: redistest.Key(b), Limits: parsed(limits...)}))
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
