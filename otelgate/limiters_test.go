package otelgate_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/otelgate"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// observer is a function for Config.Observe.
type observer = func(context.Context, window.Observation)

// newLimiter creates a limiter that uses conn and has a Fallback or, if conn is nil, a limiter in
// memory. It returns a function that makes an attempt. The first attempt is allowed, and the others
// are denied.
type newLimiter func(name string, conn *window.Connection, observe observer) (attempt func(context.Context) error)

// limiters holds a constructor for each kind of limiter.
var limiters = map[string]newLimiter{
	"window": func(name string, conn *window.Connection, observe observer) func(context.Context) error {
		cfg := window.Config{Name: name, Limits: parsed("1/1h"), Timeout: time.Minute, Observe: observe}
		l := must(window.NewLocal(cfg))
		if conn != nil {
			cfg.Fallback = l
			l = must(window.New(conn, cfg))
		}
		return func(ctx context.Context) error { _, err := l.Allow(ctx, "e"); return err }
	},
	"ar1": func(name string, conn *window.Connection, observe observer) func(context.Context) error {
		cfg := ar1.Config{Name: name, Limits: parsed("1/1h"), Timeout: time.Minute, Observe: observe}
		l := must(ar1.NewLocal(cfg))
		if conn != nil {
			cfg.Fallback = l
			l = must(ar1.New(conn, cfg))
		}
		return func(ctx context.Context) error { _, err := l.Allow(ctx, "e"); return err }
	},
	"pace": func(name string, conn *window.Connection, observe observer) func(context.Context) error {
		cfg := pace.Config{Name: name, Limits: parsed("1/1h"), Timeout: time.Minute, Observe: observe}
		l := must(pace.NewLocal(cfg))
		if conn != nil {
			cfg.Fallback = l
			l = must(pace.New(conn, cfg))
		}
		return func(ctx context.Context) error { _, err := l.Reserve(ctx, "e"); return err }
	},
	"inflight": func(name string, conn *window.Connection, observe observer) func(context.Context) error {
		cfg := inflight.Config{Name: name, Max: 1, TTL: time.Hour, Timeout: time.Minute, Observe: observe}
		l := must(inflight.NewLocal(cfg))
		if conn != nil {
			cfg.Fallback = l
			l = must(inflight.New(conn, cfg))
		}
		return func(ctx context.Context) error { _, _, err := l.TryAcquire(ctx, "e"); return err }
	},
}

// TestSources checks that decisions of each kind of limiter have the right source, and that those
// made by Redis have a duration in Redis.
func TestSources(t *testing.T) {
	conns := map[string]*window.Connection{
		"redis": window.On(redistest.Client(t)), "memory": nil, "fallback": window.Dial("redis://127.0.0.1:1"),
	}
	for kind, limiter := range limiters {
		for source, conn := range conns {
			t.Run(kind+" by "+source, func(t *testing.T) {
				b := newCollector()
				attempt := limiter(redistest.Key(t), conn, b.observe)
				for range 2 {
					if err := attempt(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if diff := cmp.Diff(map[string]uint64{"allowed by " + source: 1, "denied by " + source: 1}, b.decisions(t)); diff != "" {
					t.Errorf("decisions (-want +got)\n%s", diff)
				}
				asked, _ := b.metrics(t)["slidegate.limiter.redis.duration"].Data.(metricdata.Histogram[float64])
				if inRedis := len(asked.DataPoints) == 1 && asked.DataPoints[0].Count == 2; inRedis != (source == "redis") {
					t.Errorf("in Redis: %v", asked.DataPoints)
				}
			})
		}
	}
}

// TestWait checks that the source of a pace turn that a caller has waited for is Redis.
func TestWait(t *testing.T) {
	b := newCollector()
	l := must(pace.New(window.On(redistest.Client(t)), pace.Config{Name: redistest.Key(t), Limits: parsed("1/1h"), Timeout: time.Minute, Observe: b.observe}))
	if err := l.Wait(t.Context(), "e"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]uint64{"allowed by redis": 1}, b.decisions(t)); diff != "" {
		t.Errorf("decisions (-want +got)\n%s", diff)
	}
}

// TestInFlight checks that the units that each limiter holds, in total and in a Fallback, are
// reported until Unregister is called.
func TestInFlight(t *testing.T) {
	b := newCollector()
	cfg := inflight.Config{Name: "jobs", Max: 5}
	local := must(inflight.NewLocal(cfg))
	cfg.Name, cfg.Fallback = "exports", must(inflight.NewLocal(cfg))
	away := must(inflight.New(window.Dial("redis://127.0.0.1:1"), cfg))
	registration := must(otelgate.InFlight(b.provider, local, away))
	for i, l := range []*inflight.Limiter{local, away} {
		if _, _, err := l.TryAcquireN(t.Context(), "e", int64(i+2)); err != nil {
			t.Fatal(err)
		}
	}
	values := func() map[string]int64 {
		all := map[string]int64{}
		for _, name := range []string{"held", "degraded", "waiting"} {
			sum, _ := b.metrics(t)["slidegate.limiter."+name].Data.(metricdata.Sum[int64])
			for _, p := range sum.DataPoints {
				all[text(p.Attributes, "slidegate.limiter.name")+" "+name] = p.Value
			}
		}
		return all
	}
	want := map[string]int64{
		"jobs held": 2, "jobs degraded": 0, "jobs waiting": 0, "exports held": 3, "exports degraded": 3, "exports waiting": 0,
	}
	if diff := cmp.Diff(want, values()); diff != "" {
		t.Errorf("values (-want +got)\n%s", diff)
	}
	if err := registration.Unregister(); err != nil || len(values()) > 0 {
		t.Errorf("%v, still reported: %v", err, values())
	}
}
