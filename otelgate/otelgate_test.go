package otelgate_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/otelgate"
	"github.com/slidegate/slidegate/window"
)

// TestNoProvider checks that the error for a missing provider states the remedy.
func TestNoProvider(t *testing.T) {
	const want = `slidegate: otelgate has no MeterProvider; use otel.GetMeterProvider()`
	if observe, err := otelgate.New(nil); observe != nil || err == nil || err.Error() != want {
		t.Errorf("%v\nnot: %s", err, want)
	}
	if r, err := otelgate.InFlight(nil); r != nil || err == nil || err.Error() != want {
		t.Errorf("%v\nnot: %s", err, want)
	}
}

// TestBuckets checks that the buckets of both histograms distinguish the durations that matter.
func TestBuckets(t *testing.T) {
	b := newCollector()
	took := []time.Duration{200 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 5 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond, 900 * time.Millisecond}
	for _, d := range took {
		b.observe(t.Context(), seen(window.KindAllowed, d))
	}
	for _, name := range []string{"slidegate.limiter.decision.duration", "slidegate.limiter.redis.duration"} {
		points := b.durations(t, name)
		if len(points) != 1 || points[0].Count != uint64(len(took)) {
			t.Fatalf("%s: %v", name, points)
		}
		if first, last := points[0].Bounds[0], points[0].Bounds[len(points[0].Bounds)-1]; first != .00005 || last != 5 {
			t.Errorf("%s: boundaries from %v s to %v s", name, first, last)
		}
		filled := 0
		for i, n := range points[0].BucketCounts {
			if n > 0 {
				filled++
				t.Logf("%s: %d up to %v s", name, n, points[0].Bounds[i])
			}
		}
		if filled != len(took) {
			t.Errorf("%s: %d durations fill %d buckets", name, len(took), filled)
		}
	}
}

// TestDecisions checks that each decision is counted once, by outcome and source. Decisions made by
// Redis have a duration in Redis.
func TestDecisions(t *testing.T) {
	b := newCollector()
	cached := uint64(0)
	cfg := window.Config{Name: redistest.Key(t), Limits: parsed("2/1h"), Timeout: time.Minute, DenialCache: 9, Observe: func(ctx context.Context, o window.Observation) {
		if b.observe(ctx, o); o.Trace.Remembered {
			cached++
		}
	}}
	l := must(window.New(window.On(redistest.Client(t)), cfg))
	tries := uint64(0)
	for ; cached < 5; tries++ {
		must(l.Allow(t.Context(), "e"))
	}
	inRedis := tries - cached + 6
	_, _ = l.Allow(t.Context(), "")
	must(l.Peek(t.Context(), "e"))
	must(l.Charge(t.Context(), "e", 3))
	for range 3 {
		must(l.Allow(t.Context(), "f"))
	}
	merged := window.Observation{Limiter: l.Name(), Kind: window.KindAllowed, Units: 1}
	merged.Trace.InRedis, merged.Trace.Batch, merged.Trace.Merged = time.Millisecond, 1, true
	b.observe(t.Context(), merged)

	cfg.DenialCache, cfg.MaxEvents = 0, 1
	local := must(window.NewLocal(cfg))
	must(local.Allow(t.Context(), "e"))
	must(local.Allow(t.Context(), "f")) // memory has no room

	want := map[string]uint64{
		"allowed by redis": 5, "denied by redis": inRedis - 7, "denied by denial_cache": cached, "refused by none": 1, "peeked by redis": 1, "charged by redis": 1,
		"allowed by memory": 1, "denied by memory": 1,
	}
	if diff := cmp.Diff(want, b.decisions(t)); diff != "" {
		t.Errorf("decisions (-want +got)\n%s", diff)
	}
	if times := b.durations(t, "slidegate.limiter.redis.duration"); len(times) != 1 || times[0].Count != inRedis {
		t.Errorf("in Redis: %v", times)
	}
	sizes := b.metrics(t)["slidegate.limiter.batch.size"].Data.(metricdata.Histogram[int64]).DataPoints
	if len(sizes) != 1 || sizes[0].Count != inRedis || sizes[0].Sum != int64(inRedis) { // there was only one caller
		t.Errorf("batches: %v", sizes)
	}
	if merged, full := b.sum(t, "slidegate.limiter.decision.merged"), b.sum(t, "slidegate.limiter.decision.full"); merged != 1 || full != 1 {
		t.Errorf("%d merged, %d without room", merged, full)
	}
}

// TestOverride checks the source of decisions under a block and under an unlimited override. Under
// an override that sets other limits, the source is Redis.
func TestOverride(t *testing.T) {
	b, client := newCollector(), redistest.Client(t)
	cfg := window.Config{Name: redistest.Key(t), Limits: parsed("2/1h"), Timeout: time.Minute, Overrides: true}
	l := must(window.New(window.On(client), cfg))
	cfg.Observe = b.observe
	observed := must(window.New(window.On(client), cfg))
	for event, o := range map[string]window.Override{
		"none": {Mode: window.OverrideBlock}, "all": {Mode: window.OverrideUnlimited}, "more": {Mode: window.OverrideLimits, Limits: parsed("3/1h")},
	} {
		o.Why = "on call"
		if err := l.Override(t.Context(), event, o, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	peeks, pace := uint64(1), time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for ; must(observed.Peek(t.Context(), "more")).Override == ""; peeks++ {
		<-pace.C
	}
	for _, event := range []string{"none", "all", "all", "more"} {
		must(observed.Allow(t.Context(), event))
	}
	want := map[string]uint64{"denied by override": 1, "allowed by override": 2, "allowed by redis": 1, "peeked by redis": peeks}
	if diff := cmp.Diff(want, b.decisions(t)); diff != "" {
		t.Errorf("decisions (-want +got)\n%s", diff)
	}
}

// TestPlan checks that a limiter's decisions are distinguished by the plan from WithPlan.
func TestPlan(t *testing.T) {
	b := newCollector()
	l := must(window.NewLocal(window.Config{Name: "api", Limits: parsed("2/1h"), Observe: b.observe}))
	pro := must(l.WithPlan("pro").With(parsed("9/1h")...))
	for _, of := range []*window.Limiter{l, pro, pro, l.WithPlan("free")} {
		must(of.Allow(t.Context(), "e"))
	}
	got := map[string]uint64{}
	for _, p := range b.durations(t, "slidegate.limiter.decision.duration") {
		got[fmt.Sprint(text(p.Attributes, "slidegate.limiter.plan"), " ", p.Attributes.Len())] += p.Count
	}
	if diff := cmp.Diff(map[string]uint64{" 3": 1, "pro 4": 2, "free 4": 1}, got); diff != "" {
		t.Errorf("plans, numbers of attributes and decisions (-want +got)\n%s", diff)
	}
}

// TestOutage checks that an outage is counted when it starts, that it is active until it ends, and
// that decisions during the outage have the right source.
func TestOutage(t *testing.T) {
	server, b := redistest.Start(t), newCollector()
	cfg := window.Config{Name: redistest.Key(t), Limits: parsed("1000000/1h"), Timeout: time.Minute, Observe: b.observe}
	l := must(window.New(window.On(server.Client(t)), cfg))
	cfg.Name += ".b"
	cfg.Fallback = must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1000000/1h")}))
	withFallback := must(window.New(window.On(server.Client(t)), cfg))
	must(l.Allow(t.Context(), "e"))
	outages := func() [2]int64 {
		return [2]int64{b.sum(t, "slidegate.limiter.outages"), b.sum(t, "slidegate.limiter.active_outages")}
	}
	if got := outages(); got != [2]int64{0, 0} {
		t.Errorf("before: %v", got)
	}
	server.Kill(t)
	for range 4 {
		_, _ = l.Allow(t.Context(), "e")
		must(withFallback.Allow(t.Context(), "e"))
	}
	if got := outages(); got != [2]int64{2, 2} {
		t.Errorf("while Redis is dead: %v", got)
	}
	counts := b.decisions(t)
	if counts["allowed by redis"] != 1 || counts["allowed by fallback"] != 4 || counts["outage by none"]+counts["uncertain by none"] != 4 {
		t.Error(counts)
	}
	for _, p := range b.durations(t, "slidegate.limiter.decision.duration") {
		if failed := text(p.Attributes, "slidegate.decision.source") != "redis"; failed != (text(p.Attributes, "error.type") == "refused" || text(p.Attributes, "error.type") == "closed") {
			t.Errorf("why: %v", p.Attributes)
		}
	}
	server.Restart(t)
	for active := int64(2); active > 0 && t.Context().Err() == nil; active = outages()[1] {
		_, _ = l.Allow(t.Context(), "e")
		_, _ = withFallback.Allow(t.Context(), "e")
	}
	if got := outages(); got != [2]int64{2, 0} {
		t.Errorf("after: %v", got)
	}
}

// TestKinds checks that the kinds of observations that no other test here causes are recorded too.
func TestKinds(t *testing.T) {
	b := newCollector()
	cut := window.Observation{Limiter: "api", Kind: window.KindUncertain, Err: &health.Failure{Counted: window.ErrUncertain, Cause: io.EOF}, Took: time.Second}
	cut.Trace.InRedis = time.Second
	b.observe(t.Context(), cut)
	for _, step := range []struct {
		kind window.Kind
		want int64
	}{{window.KindOverridesUnread, 1}, {window.KindOverridesRead, 0}} {
		b.observe(t.Context(), window.Observation{Limiter: "api", Kind: step.kind})
		if got := b.sum(t, "slidegate.limiter.overrides.unread"); got != step.want {
			t.Errorf("%s: %d limiters that cannot read overrides", step.kind, got)
		}
	}
	for _, kind := range []window.Kind{inflight.KindLost, inflight.KindOverdue, inflight.KindOverdue} {
		b.observe(t.Context(), window.Observation{Limiter: "api", Kind: kind, Units: 5, Err: inflight.ErrLost})
	}
	lost := map[string]int64{}
	for _, p := range b.metrics(t)["slidegate.limiter.lease.lost"].Data.(metricdata.Sum[int64]).DataPoints {
		lost[text(p.Attributes, "slidegate.lease.outcome")] = p.Value
	}
	if diff := cmp.Diff(map[string]int64{"lost": 1, "overdue": 2}, lost); diff != "" {
		t.Errorf("leases lost (-want +got)\n%s", diff)
	}
	points := b.durations(t, "slidegate.limiter.decision.duration")
	if len(points) != 1 || text(points[0].Attributes, "error.type") != "closed" {
		t.Errorf("%v", points)
	}
}

// traced returns a context with a recording span, and a function that ends the span and returns its
// events.
func traced(t *testing.T) (context.Context, func() []trace.Event) {
	recorder := tracetest.NewSpanRecorder()
	ctx, span := trace.NewTracerProvider(trace.WithSpanProcessor(recorder)).Tracer("test").Start(t.Context(), "request")
	return ctx, func() []trace.Event {
		span.End()
		return recorder.Ended()[0].Events()
	}
}

// TestSpan checks that the caller's span gets an event for each decision, with the wait and with
// the tightest limit, which is written without its Resolution.
func TestSpan(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	l := must(window.NewLocal(window.Config{
		Name: "api", Limits: parsed("1/5s@1s", "2/1h"), Observe: newCollector().observe, Now: func() time.Time { return now },
	}))
	ctx, events := traced(t)
	must(l.Allow(ctx, "secret-event"))
	now = now.Add(2 * time.Second)
	must(l.Allow(ctx, "secret-event"))
	_, _ = l.Allow(ctx, "")
	var got []string
	for _, e := range events() {
		words := []string{e.Name}
		for _, a := range e.Attributes {
			words = append(words, fmt.Sprint(a.Key, "=", fmt.Sprint(a.Value.AsInterface())))
		}
		got = append(got, strings.ReplaceAll(strings.Join(words, " "), "slidegate.", ""))
	}
	want := []string{
		"decision decision.outcome=allowed decision.source=memory limiter.name=api decision.retry_after=0 decision.tightest_limit=1/5s",
		"decision decision.outcome=denied decision.source=memory limiter.name=api decision.retry_after=3 decision.tightest_limit=1/5s",
		"decision error.type=_OTHER decision.outcome=refused decision.source=none limiter.name=api",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
}

// TestExemplars checks that a bucket has an exemplar with the trace of a decision that fell into
// it.
func TestExemplars(t *testing.T) {
	b := newCollector()
	ctx, _ := traced(t)
	b.observe(ctx, seen(window.KindDenied, 900*time.Millisecond))
	want := api.SpanContextFromContext(ctx).TraceID()
	for _, name := range []string{"slidegate.limiter.decision.duration", "slidegate.limiter.redis.duration"} {
		exemplars := b.durations(t, name)[0].Exemplars
		if len(exemplars) != 1 || !slices.Equal(exemplars[0].TraceID, want[:]) || exemplars[0].Value != .9 {
			t.Errorf("%s has %v, not one of trace %s", name, exemplars, want)
		}
	}
}

// TestNoEvent checks that event keys appear neither in metrics nor in traces.
func TestNoEvent(t *testing.T) {
	b := newCollector()
	ctx, events := traced(t)
	l := must(window.New(window.On(redistest.Client(t)), window.Config{Name: redistest.Key(t), Limits: parsed("1/1h"), Timeout: time.Minute, DenialCache: 9, Observe: b.observe}))
	for range 5 {
		must(l.Allow(ctx, "secret-event"))
	}
	_, _ = l.AllowN(ctx, "secret-event", 2) // above Max
	if all := fmt.Sprintf("%+v %+v", b.metrics(t), events()); strings.Contains(all, "secret") || !strings.Contains(all, "denied") {
		t.Error(all)
	}
}

// TestConventions checks that names, units and attributes follow the semantic conventions.
func TestConventions(t *testing.T) {
	b, name := newCollector(), regexp.MustCompile(`^slidegate(\.[a-z][a-z0-9]*(_[a-z0-9]+)*)+$`)
	b.observe(t.Context(), seen(window.KindAllowed, time.Millisecond))
	b.observe(t.Context(), window.Observation{Limiter: "api", Kind: window.KindOutage})
	must(otelgate.InFlight(b.provider, must(inflight.NewLocal(inflight.Config{Name: "jobs", Max: 1}))))
	all := b.metrics(t)
	if len(all) != 12 {
		t.Errorf("%d metrics", len(all))
	}
	page := string(must(os.ReadFile("../docs/monitoring.md")))
	for _, m := range all {
		if !strings.Contains(page, "| `"+m.Name+"` |") {
			t.Errorf("docs/monitoring.md lacks %s", m.Name)
		}
		if !name.MatchString(m.Name) || strings.HasSuffix(m.Name, "_total") || m.Unit != "s" && !regexp.MustCompile(`^\{[a-z]+\}$`).MatchString(m.Unit) || m.Description == "" {
			t.Errorf("%q, unit %q: %s", m.Name, m.Unit, m.Description)
		}
		for _, key := range keys(m.Data) {
			if !name.MatchString(key) && key != "error.type" || !strings.Contains(page, "| `"+key+"` |") {
				t.Errorf("%s has the attribute %q", m.Name, key)
			}
		}
	}
}

// keys returns the names of a metric's attributes.
func keys(data metricdata.Aggregation) (all []string) {
	var sets []attribute.Set
	switch data := data.(type) {
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Histogram[int64]:
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	}
	for _, set := range sets {
		for _, a := range set.ToSlice() {
			all = append(all, string(a.Key))
		}
	}
	return all
}

// TestAtOnce checks that no decision is lost when many goroutines use many limiters for the first
// time.
func TestAtOnce(t *testing.T) {
	b := newCollector()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 100 {
				o := seen(window.KindAllowed, time.Millisecond)
				o.Limiter = fmt.Sprint("limiter ", i)
				b.observe(t.Context(), o)
			}
		})
	}
	all.Wait()
	if got := b.decisions(t)["allowed by redis"]; got != 800 {
		t.Errorf("%d decisions", got)
	}
}

// TestNoAllocations checks that this package allocates nothing for a decision whose span is not
// recorded.
func TestNoAllocations(t *testing.T) {
	if redistest.Race {
		t.Skip("under the race detector, pools forget at random")
	}
	b, o := newCollector(), seen(window.KindAllowed, time.Millisecond)
	o.Plan = "pro"
	if n := testing.AllocsPerRun(1000, func() { b.observe(t.Context(), o) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkAllow measures decisions with and without otelgate, with the real SDK.
func BenchmarkAllow(b *testing.B) {
	for _, where := range []string{"memory", "Redis"} {
		for _, of := range []struct {
			name    string
			observe func(context.Context, window.Observation)
			traced  bool
		}{
			{"without", nil, false},
			{"with metrics", newCollector().observe, false},
			{"with metrics and a span", newCollector().observe, true},
		} {
			b.Run(where+"/"+of.name, func(b *testing.B) {
				cfg := window.Config{Name: redistest.Key(b), Limits: parsed("1000000000/1h"), Observe: of.observe}
				l := must(window.NewLocal(cfg))
				if where == "Redis" {
					l = must(window.New(window.On(redistest.Client(b)), cfg))
				}
				ctx := b.Context()
				if of.traced {
					ctx, _ = trace.NewTracerProvider().Tracer("bench").Start(ctx, "request")
				}
				b.ReportAllocs()
				for b.Loop() {
					must(l.Allow(ctx, "198.51.100.7"))
				}
			})
		}
	}
}
