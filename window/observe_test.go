package window_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestObserve checks that Observe receives every attempt and peek once, with its result, and
// without its event.
func TestObserve(t *testing.T) {
	var seen []window.Observation
	cfg := limits("2/1h")
	cfg.Observe = func(_ context.Context, o window.Observation) { seen = append(seen, o) }
	both(t, cfg, func(b bench) {
		seen = nil
		b.allow("secret-event", 2)
		b.allow("secret-event", 1)
		b.peek("secret-event", 1)
		_, _ = b.AllowN(b.Context(), "secret-event", 3)
		_, _ = b.Allow(b.Context(), "")
		ctx, cancel := context.WithDeadline(b.Context(), time.Now())
		defer cancel()
		_, _ = b.Wait(ctx, "secret-event")
		d := b.good(b.AllowUpTo(b.Context(), "other secret", 3))
		b.good(b.Settle(b.Context(), "other secret", d, 5))
		var kinds []string
		for _, o := range seen {
			kinds = append(kinds, fmt.Sprint(o.Kind, " ", o.Units, " ", o.Decision.Allowed, " ", len(o.Decision.Usage)))
			if o.Limiter == "" || o.Took <= 0 || strings.Contains(fmt.Sprintf("%+v", o), "secret") {
				b.Errorf("%+v", o)
			}
		}
		want := []string{"allowed 2 true 1", "denied 1 false 1", "peeked 1 false 1", "refused 3 false 0", "refused 1 false 0", "refused 1 false 0", "allowed 3 true 1", "charged 3 false 1"}
		if !slices.Equal(kinds, want) {
			b.Errorf("got  %q\nwant %q", kinds, want)
		}
	})
}

// TestObserveTrouble checks the Kind of attempts that fail in Redis, and of attempts that the
// Fallback answers. Their observations must contain the cause, but not the event.
func TestObserveTrouble(t *testing.T) {
	server, faults := redistest.Start(t), &redistest.Faults{}
	var seen []window.Observation
	cfg := window.Config{Name: "observed", Limits: parsed("5/1h"), Timeout: time.Minute, Observe: func(_ context.Context, o window.Observation) { seen = append(seen, o) }}
	client := server.NewClient(t, faults.Break)
	l := must(window.New(window.On(client), cfg))
	must(l.Allow(t.Context(), "e"))
	faults.LoseReply("EVALSHA")
	if _, err := l.Allow(t.Context(), "e"); !errors.Is(err, window.ErrUncertain) {
		t.Fatal(err)
	}
	do(t, client, "CONFIG", "SET", "maxmemory", "1")
	if _, err := l.Allow(t.Context(), "e"); !errors.Is(err, window.ErrOutage) {
		t.Fatal(err)
	}
	cfg.Fallback = must(window.NewLocal(window.Config{Name: "local", Limits: parsed("5/1h")}))
	l = must(window.New(window.On(client), cfg))
	d := must(l.Allow(t.Context(), "secret"))
	must(l.Settle(t.Context(), "secret", d, 2)) // charges the Fallback
	var got []string
	for _, o := range seen {
		got = append(got, fmt.Sprintf("%s %s %q", o.Kind, window.ReasonOf(o.Err), window.ReasonOf(o.Decision.Cause)))
		if o.Decision.Degraded != (o.Decision.Cause != nil) || strings.Contains(fmt.Sprint(o.Err, o.Decision.Cause), "secret") {
			t.Errorf("%+v", o)
		}
	}
	want := []string{`allowed  ""`, `uncertain closed ""`, `outage oom ""`, `allowed oom "oom"`, `charged oom "oom"`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestObserveHow checks that an Observation describes the Redis call, and that Observe receives the
// caller's context.
func TestObserveHow(t *testing.T) {
	type mark struct{}
	ctx := context.WithValue(t.Context(), mark{}, "of the caller")
	var seen []window.Observation
	cfg := window.Config{Name: redistest.Key(t), Limits: parsed("2/1h"), DenialCache: 10, Observe: func(ctx context.Context, o window.Observation) {
		if seen = append(seen, o); ctx.Value(mark{}) == nil {
			t.Errorf("%s: not the context of the call", o.Kind)
		}
	}}
	l := must(window.New(window.On(redistest.Cluster(t)), cfg))
	for len(seen) == 0 || !seen[len(seen)-1].Trace.Remembered || seen[len(seen)-1].Trace.Master == "" {
		must(l.Allow(ctx, "e"))
	}
	last, master := seen[len(seen)-1], "" // until the masters are known
	if last.Kind != window.KindDenied || last.Trace.InRedis != 0 {
		t.Errorf("not from the cache: %+v", last)
	}
	for i, o := range seen {
		if sent := o.Trace.InRedis > 0 && o.Trace.InRedis <= o.Took; sent == o.Trace.Remembered || sent != (o.Trace.Batch == 1) || o.Trace.Merged || master != "" && o.Trace.Master != master {
			t.Errorf("attempt %d: %+v", i, o)
		}
		master = o.Trace.Master
	}
}

// TestObserveBatch checks that each request in a pipeline of n reports a Batch of n, and that
// attempts for the same event report that they merged.
func TestObserveBatch(t *testing.T) {
	const callers = 1000
	var mu sync.Mutex
	perSize, all, merged := map[int]int{}, 0, 0
	cfg := window.Config{Name: redistest.Key(t), Limits: parsed("2/1h"), Timeout: time.Minute, Observe: func(_ context.Context, o window.Observation) {
		mu.Lock()
		defer mu.Unlock()
		perSize[o.Trace.Batch]++
		if all++; o.Trace.Merged {
			merged++
		}
	}}
	l := must(window.New(window.On(redistest.Client(t)), cfg))
	redistest.AtOnce(callers, func(i int) { must(l.Allow(t.Context(), strconv.Itoa(i%(callers/10)))) })
	largest := 0
	for size, n := range perSize {
		if largest = max(largest, size); size < 1 || size > 128 || n%size != 0 {
			t.Errorf("%d observations of batches of %d", n, size)
		}
	}
	if all != callers || largest < 2 || merged < 2 {
		t.Errorf("%d observations, %d of merged attempts; the largest batch had %d requests", all, merged, largest)
	}
}

// TestObserverPanics checks that a panic in Observe does not block later calls.
func TestObserverPanics(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var panics, panicked atomic.Bool
	l := must(window.New(window.On(server.Client(t)), window.Config{Name: "panic", Limits: parsed("1/100ms"), DenialCache: 10, Timeout: faulttest.Timeout, Observe: func(_ context.Context, o window.Observation) {
		if o.Kind == window.KindOutageBegan && panics.CompareAndSwap(true, false) {
			panicked.Store(true)
			panic("observer")
		}
	}}))
	for range 5 {
		faulttest.AwaitAnswer(t, l, "e")
	}
	panics.Store(true)
	server.Pause(t)
	for _, event := range []string{"e", "f", "f", "e", "e"} {
		func() {
			defer func() { _ = recover() }()
			_, _ = l.Allow(t.Context(), event)
		}()
	}
	server.Resume(t)
	faulttest.AwaitAnswer(t, l, "e")
	if _, err := l.Allow(t.Context(), "e"); err != nil || !panicked.Load() {
		t.Errorf("%v; it has panicked: %v", err, panicked.Load())
	}
}

// TestSlots checks that we compute the same slot for a key as rueidis.
func TestSlots(t *testing.T) {
	client := redistest.Cluster(t)
	l := must(window.New(window.On(client), window.Config{Name: redistest.Key(t), Limits: parsed("1/1h"), Timeout: time.Minute}))
	for n := range 1000 {
		event := fmt.Sprint(n*n, strings.Repeat("x", n%40))
		if n < len(hostile) && hostile[n] != "" {
			event = hostile[n]
		}
		key := key(t, l, event)
		command := client.B().Get().Key(key).Build()
		if got, want := keys.Slot(key), int(command.Slot()); got != want {
			t.Fatalf("%q is in slot %d, not %d", key, got, want)
		}
		client.Do(t.Context(), command) // a command must be sent once it is built
	}
}
