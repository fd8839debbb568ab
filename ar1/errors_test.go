package ar1_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestBadConfig checks that the error for an invalid Config names the value and the remedy in one
// sentence.
func TestBadConfig(t *testing.T) {
	local := must(ar1.NewLocal(ar1.Config{Name: "x", Limits: limits("5/1h")}))
	for says, cfg := range map[string]ar1.Config{
		`limit 1 with a Resolution of 1m0s; leave it at 0`:                      {Limits: []window.Limit{{Max: 5, Per: time.Hour, Resolution: time.Minute}}},
		`limit 1 with a Max of 0; choose 1 to 10^7`:                             {Limits: []window.Limit{{Per: time.Hour}}},
		`a Max of 10000001; choose 1 to 10^7 units`:                             {Limits: []window.Limit{{Max: 1e7 + 1, Per: time.Hour}}},
		`two limits with a Per of 1h0m0s, 5/1h and 70/1h; keep the tighter one`: {Limits: limits("5/1h", "70/1h")},
		`is in memory and has a Fallback, which it never needs`:                 {Limits: limits("5/1h"), Fallback: local},
	} {
		cfg.Name = "x"
		if _, err := ar1.NewLocal(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
}

// TestClockOutOfRange checks that times before 1970 and after 2255 are errors, and count nothing.
func TestClockOutOfRange(t *testing.T) {
	both(t, ar1.Config{Limits: limits("500/1m")}, func(b bench) {
		b.clock.us.Store(-1)
		_, early := b.Allow(b.Context(), "e")
		b.clock.us.Store(1 << 53)
		_, late := b.Allow(b.Context(), "e")
		b.clock.us.Store(1<<53 - 1)
		for says, err := range map[string]error{"between 1970 and 2255": early, "2255-06-05": late} {
			if err == nil || !strings.Contains(err.Error(), says) {
				b.Errorf("%v does not say %q", err, says)
			}
		}
		if b.level() != 0 || !b.allow("e", 500).Allowed || b.allow("e", 1).Allowed {
			b.Error("bad attempts counted, or a good one in 2255 did not")
		}
	})
}

// TestFallback checks that the Fallback decides if the server refuses to write, that Observe
// receives the plan, and that a decision of the Fallback is refunded there.
func TestFallback(t *testing.T) {
	client := redistest.Start(t).Client(t)
	must("", client.Do(t.Context(), client.B().ConfigSet().ParameterValue().ParameterValue("maxmemory", "1").Build()).Error())
	local := must(ar1.NewLocal(ar1.Config{Name: "local", Limits: limits("1/1h")}))
	var seen []string
	l := must(ar1.New(window.On(client), ar1.Config{
		Name: "outage", Limits: limits("5/1h"), Fallback: local, Timeout: time.Minute,
		Observe: func(_ context.Context, o window.Observation) {
			seen = append(seen, fmt.Sprint(o.Kind, o.Plan, window.ReasonOf(o.Err)))
		},
	}))
	d := must(l.Allow(t.Context(), "e"))
	if !d.Degraded || window.ReasonOf(d.Cause) != window.ReasonOOM || !d.Allowed || must(l.WithPlan(" pro ").Allow(t.Context(), "e")).Allowed {
		t.Errorf("the Fallback: %+v", d)
	}
	if err := l.Refund(t.Context(), "e", d); err != nil || must(local.Inspect(t.Context(), "e")).Limits[0].Level != 0 {
		t.Errorf("refunded in the Fallback: %v", err)
	}
	if diff := cmp.Diff([]string{"allowedoom", "denied pro oom"}, seen); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestOnDenied checks that OnDenied receives each denial exactly once, with the hash in the key
// instead of the event if there is a Secret, and nothing else.
func TestOnDenied(t *testing.T) {
	for _, secret := range [][]byte{nil, []byte("0123456789abcdef")} {
		var seen []window.Denial
		both(t, ar1.Config{Limits: limits("2/1h", "3/1d"), Secret: secret, OnDenied: func(_ context.Context, d window.Denial) { seen = append(seen, d) }}, func(b bench) {
			seen = nil
			b.allow("a", 2)
			d := b.allow("a", 1)
			b.peek("a", 1)
			b.allow("b", 1)
			name, rest, _ := strings.Cut(must(b.Inspect(b.Context(), "a")).Key, ":{")
			want := window.Denial{
				Limiter: name, Event: strings.TrimSuffix(rest, "}:a"), Hashed: secret != nil, Limit: limits("2/1h")[0], Decision: d,
			}
			if diff := cmp.Diff([]window.Denial{want}, seen); diff != "" {
				b.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
