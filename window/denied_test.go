package window_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// noted returns a hook that appends what it receives.
func noted(to *[]window.Denial) func(context.Context, window.Denial) {
	return func(_ context.Context, d window.Denial) { *to = append(*to, d) }
}

// TestOnDenied checks that OnDenied receives each denial of every method exactly once, and nothing
// else.
func TestOnDenied(t *testing.T) {
	var seen []window.Denial
	cfg := limits("2/1h", "3/1d")
	cfg.OnDenied = noted(&seen)
	both(t, cfg, func(b bench) {
		seen = nil
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		b.allow("a", 2)
		b.allow("a", 1)
		b.peek("a", 1)
		b.good(b.AllowUpTo(ctx, "a", 5))
		b.good(b.AllowUpTo(ctx, "b", 5)) // grants two
		b.good(b.Charge(ctx, "b", 3))
		b.allow("c", 2)
		b.allow("c", 1)
		b.allow("d", 1)
		must(window.AllowAll(ctx, window.Check{Limiter: b.Limiter, Event: "e"}, window.Check{Limiter: b.Limiter, Event: "c"}))
		if _, err := b.Wait(ctx, "a"); err == nil {
			b.Error("Wait waited although the wait is an hour")
		}
		_, _ = b.AllowN(ctx, "f", 4)
		must(with(b.Limiter, "1/1d").Allow(ctx, "b"))
		var got []string
		for _, d := range seen {
			got = append(got, fmt.Sprint(d.Event, " ", d.Limit.Label(), " ", d.RetryAfter))
			if d.Limiter != b.Name() || d.Hashed || !d.At.Equal(noon) {
				b.Errorf("%+v", d)
			}
		}
		want := []string{"a 2/1h 1h0m0s", "a 2/1h 1h0m0s", "c 2/1h 1h0m0s", "c 2/1h 1h0m0s", "a 2/1h 1h0m0s", "b 1/1d 24h0m0s"}
		if diff := cmp.Diff(want, got); diff != "" {
			b.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// withoutUsage returns d without its Usage, and without the Remaining units that follow from it.
func withoutUsage(d window.Denial) window.Denial {
	d.Usage, d.Remaining = nil, 0
	return d
}

// TestOnDeniedByOverride checks that a denial says which override denied.
func TestOnDeniedByOverride(t *testing.T) {
	var seen []window.Denial
	n := newNight(t, window.On(redistest.Client(t)), func(cfg *window.Config) { cfg.OnDenied = noted(&seen) })
	n.override("none", window.Override{Mode: window.OverrideBlock})
	n.override("less", window.Override{Limits: parsed("1/1m")})
	n.attempts("none", 1)
	n.attempts("less", 2)
	for i, want := range []window.Denial{
		{Limiter: n.Name(), Event: "none", Decision: window.Decision{Override: window.OverrideBlock, RetryAfter: time.Hour, At: noon}},
		{Limiter: n.Name(), Event: "less", Limit: window.PerMinute(1), Decision: window.Decision{Override: window.OverrideLimits, RetryAfter: time.Minute, At: noon}},
	} {
		if diff := cmp.Diff(want, withoutUsage(seen[i])); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestOnDeniedHides checks that a denial carries the hash in the key instead of the event if there
// is a Secret or the event is long, whether it comes from memory, Redis, the denial cache or the
// Fallback.
func TestOnDeniedHides(t *testing.T) {
	long := strings.Repeat("long", 2500)
	nobody := window.Dial("redis://127.0.0.1:1")
	t.Cleanup(nobody.Close)
	for _, secret := range [][]byte{nil, []byte("0123456789abcdef")} {
		var seen []window.Denial
		remembered := 0
		cfg := window.Config{Name: redistest.Key(t), Limits: parsed("1/1h"), Secret: secret, OnDenied: noted(&seen)}
		limiters := map[string]*window.Limiter{"memory": must(window.NewLocal(cfg))}
		cfg.Timeout = time.Minute
		limiters["redis"] = must(window.New(window.On(redistest.Client(t)), cfg))
		cfg.Name, cfg.DenialCache = cfg.Name+"-cached", 10
		cfg.Observe = func(_ context.Context, o window.Observation) {
			if o.Trace.Remembered {
				remembered++
			}
		}
		limiters["cache"] = must(window.New(window.On(redistest.Client(t)), cfg))
		cfg.Name, cfg.Timeout, cfg.Fallback = "fallback", ms(20), must(window.NewLocal(window.Config{Name: "other", Limits: parsed("1/1h"), OnDenied: noted(&seen)}))
		limiters["fallback"] = must(window.New(nobody, cfg))
		for name, l := range limiters {
			seen = nil
			for range 101 {
				must(l.Allow(t.Context(), long))
			}
			want := window.Denial{Limiter: l.Name(), Event: keys.Tag(secret, long), Hashed: true, Limit: limit("1/1h")}
			for i, d := range seen {
				d.Decision = window.Decision{}
				if diff := cmp.Diff(want, d); diff != "" {
					t.Fatalf("%s, denial %d (-want +got):\n%s", name, i, diff)
				}
			}
			if len(seen) != 100 {
				t.Errorf("%s: %d denials, not 100", name, len(seen))
			}
		}
		if remembered == 0 {
			t.Error("the denial cache answered nothing")
		}
	}
}

// TestOnDeniedJointly checks that OnDenied receives one denial for each check that is denied in one
// script call, with the hash in that check's own key.
func TestOnDeniedJointly(t *testing.T) {
	var seen []window.Denial
	calls, secret := &redistest.Calls{}, []byte("0123456789abcdef")
	conn := window.On(redistest.NewClient(t, calls.Count))
	var limiters []*window.Limiter
	for i := range 3 {
		limiters = append(limiters, must(window.New(conn, window.Config{
			Name: fmt.Sprint(redistest.Key(t), i), Limits: parsed("1/1h"), Secret: secret, Timeout: time.Minute, OnDenied: noted(&seen),
		})))
	}
	awaitJoint(t, calls, limiters...)
	for _, l := range limiters[1:] {
		must(l.Allow(t.Context(), "e"))
	}
	seen = nil
	calls.Several.Store(0)
	must(window.AllowAll(t.Context(), window.Check{Limiter: limiters[0], Event: "e"}, window.Check{Limiter: limiters[1], Event: "e"}, window.Check{Limiter: limiters[2], Event: "e"}))
	if len(seen) != 2 || seen[0].Limiter != limiters[1].Name() || seen[1].Limiter != limiters[2].Name() || seen[0].Event != keys.Tag(secret, "e") || calls.Several.Load() != 1 {
		t.Errorf("%+v in %d script calls for several events", seen, calls.Several.Load())
	}
}

// TestOnDeniedFull checks that a denial has no Limit if a limiter in memory had no room for the
// event.
func TestOnDeniedFull(t *testing.T) {
	var seen []window.Denial
	l := must(window.NewLocal(window.Config{Name: "full", Limits: parsed("1/1h"), MaxEvents: 1, OnDenied: noted(&seen)}))
	must(l.Allow(t.Context(), "known"))
	d := must(l.Allow(t.Context(), "new"))
	want := []window.Denial{{Limiter: "full", Event: "new", Decision: d}}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
