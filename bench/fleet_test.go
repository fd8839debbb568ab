package main

import (
	"strings"
	"testing"
	"time"
)

// TestPace runs the pace part with short spans, and checks that the figures are possible.
func TestPace(t *testing.T) {
	if testing.Short() {
		t.Skip("its callers wait for seconds")
	}
	t.Parallel()
	b := small(t)
	b.rounds, b.span = 1, time.Second
	var res result
	if err := b.run(t.Context(), []string{"pace"}, &res); err != nil {
		t.Fatal(err)
	}
	for _, r := range res.Pace.Rows {
		if r.Calls < 1 || r.Most > r.Calls || r.Low > 100./3+1 && !r.Alone || r.High < 100./3 || r.Client <= 0 || (r.Scripts > 0) == r.Alone {
			t.Errorf("%+v", r)
		}
	}
	text := res.tables()
	for _, name := range []string{"pace", "window", "window, 2 limits", "x/time/rate"} {
		if !strings.Contains(text, "\n| "+name+" | ") {
			t.Errorf("no row of %s in %s", name, text)
		}
	}
}

// TestInFlight runs the inflight part with short spans, and checks that the figures are possible.
func TestInFlight(t *testing.T) {
	if testing.Short() {
		t.Skip("its callers wait for seconds")
	}
	t.Parallel()
	b := small(t)
	b.rounds, b.span = 1, time.Second
	var res result
	if err := b.run(t.Context(), []string{"inflight"}, &res); err != nil {
		t.Fatal(err)
	}
	r := res.InFlight
	r.Speed.check(t, leaseRows(b.ours))
	for _, w := range r.Wakes {
		if w.P50 <= 0 || w.P90 < w.P50 {
			t.Errorf("%+v", w)
		}
	}
	for _, f := range r.Fleet.Rows {
		if f.Calls < 1 || f.Most > f.Calls || (f.Scripts > 0) == f.Alone {
			t.Errorf("%+v", f)
		}
	}
	for i, s := range r.Sizes {
		if i > 0 && s.Bytes <= r.Sizes[i-1].Bytes || s.Bytes < 50 {
			t.Errorf("%+v", r.Sizes)
		}
	}
	text := res.tables()
	for _, name := range []string{"inflight, full / sorted set, full", "another process", "x/sync/semaphore", "1000"} {
		if !strings.Contains(text, "\n| "+name+" | ") {
			t.Errorf("no row of %s in %s", name, text)
		}
	}
}

// TestSpan checks the figures for two processes that take turns with a call every 20 ms, and for
// one that stalls for 200 ms and then catches up.
func TestSpan(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	calls := func(from, step, pause time.Duration) (p *process) {
		p = &process{}
		for at := from - step; at < 4*time.Second; at += step {
			shown := at
			if pause > 0 && at > time.Second && at < time.Second+pause {
				shown = time.Second + pause
			}
			p.calls = append(p.calls, call{begin.Add(shown).UnixNano(), (at + time.Second).Nanoseconds() / 100})
		}
		return p
	}
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		fleet []*process
		want  span
	}{
		"even":  {[]*process{calls(0, 40*ms, 0), calls(20*ms, 40*ms, 0)}, span{calls: 150, least: 5, most: 50, low: 50, high: 50, scripts: 1.2, client: 400}},
		"pause": {[]*process{calls(0, 20*ms, 200*ms)}, span{calls: 150, least: 0, most: 59, low: 100, high: 100, scripts: 1.2, client: 200}},
	} {
		if got, err := newSpan(test.fleet, begin, begin.Add(3*time.Second), 180); err != nil || got != test.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, test.want)
		}
	}
}

// TestFleetEnds checks that a process that cannot wait causes an error.
func TestFleetEnds(t *testing.T) {
	b := small(t)
	b.span, b.addr = time.Second, "127.0.0.1:1"
	if _, err := b.measureSpan(t.Context(), waiters(b.ours)[0]); err == nil || !strings.Contains(err.Error(), "a process of the fleet ended") {
		t.Errorf("error %v", err)
	}
}
