package pace_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// TestEvents checks that simultaneous bookings on many events share script calls, and that each
// event has its own turns.
func TestEvents(t *testing.T) {
	t.Parallel()
	const events, turns = 8, 160
	calls := &redistest.Calls{}
	conn := window.On(redistest.NewClient(t, calls.Count))
	l := must(pace.New(conn, pace.Config{Name: redistest.Key(t), Limits: parsed("1/1m"), MaxAhead: 24 * time.Hour, Timeout: time.Minute}))
	got := make([][]time.Duration, events)
	for i := range got {
		got[i] = make([]time.Duration, turns)
	}
	redistest.AtOnce(events*turns, func(i int) {
		got[i%events][i/events] = must(l.Reserve(t.Context(), fmt.Sprint("event ", i%events))).Delay
	})
	for i, delays := range got {
		slices.Sort(delays)
		for turn, delay := range delays {
			if late := time.Duration(turn)*time.Minute - delay; late < 0 || late > time.Minute {
				t.Errorf("turn %d of event %d: %v", turn, i, delay)
			}
		}
	}
	if n := calls.Scripts.Load(); n >= events*turns/2 {
		t.Errorf("%d script calls", n)
	}
}

// TestOutage checks what happens while Redis does not answer. Without a Fallback, there must be an
// error that says so. With a Fallback, its turns must be used, and given back to it. A caller that
// waits for a booked turn must still get it.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := window.On(server.Client(t))
	limits := parsed("1/200ms")
	booked := must(pace.New(conn, pace.Config{Name: "plain", Limits: limits, Timeout: time.Minute}))
	plain := must(pace.New(conn, pace.Config{Name: "plain", Limits: limits, Timeout: time.Second}))
	fallback := must(pace.NewLocal(pace.Config{Name: "local", Limits: parsed("1/5s")}))
	var degraded []window.Observation
	observe := func(_ context.Context, o window.Observation) {
		if o.Decision.Degraded {
			degraded = append(degraded, o)
		}
	}
	safe := must(pace.New(conn, pace.Config{Name: "safe", Limits: limits, Timeout: time.Second, Fallback: fallback, Observe: observe}))
	must(booked.Reserve(t.Context(), "e"))
	waits := make(chan error, 1)
	go func() { waits <- booked.Wait(t.Context(), "e") }()
	for len(must(booked.Inspect(t.Context(), "e")).Limits[0].Buckets) == 0 { // until it has booked
	}
	server.Pause(t)
	if err := <-waits; err != nil && !errors.Is(err, window.ErrUncertain) && !errors.Is(err, window.ErrOutage) {
		t.Errorf("a turn booked before the outage: %v", err)
	}
	_, err := plain.Reserve(t.Context(), "e")
	if !errors.Is(err, pace.ErrOutage) && !errors.Is(err, pace.ErrUncertain) || window.ReasonOf(err) != window.ReasonTimeout {
		t.Errorf("without a Fallback: %v", err)
	}
	if err := plain.Wait(t.Context(), "e"); !errors.Is(err, pace.ErrOutage) && !errors.Is(err, pace.ErrUncertain) {
		t.Errorf("without a Fallback: %v", err)
	}
	first, second := must(safe.Reserve(t.Context(), "e")), must(safe.Reserve(t.Context(), "e"))
	if !first.Degraded || first.Delay != 0 || !second.Degraded || second.Delay <= 0 || second.Delay > 5*time.Second {
		t.Errorf("the Fallback: %+v, %+v", first, second)
	}
	if err := safe.Wait(t.Context(), "other"); err != nil || len(degraded) != 3 {
		t.Errorf("%v, %d observed", err, len(degraded))
	}
	for _, o := range degraded {
		if o.Kind != window.KindAllowed || window.ReasonOf(o.Err) != window.ReasonTimeout || o.Err == nil || !errors.Is(o.Decision.Cause, o.Err) {
			t.Errorf("observed: %+v", o)
		}
	}
	if err := safe.Pause(t.Context(), "paused", time.Second); err != nil {
		t.Errorf("the Fallback pauses: %v", err)
	}
	if due, err := safe.Due(t.Context(), second); err != nil || due > 5*time.Second {
		t.Errorf("the second turn is due in %v: %v", due, err)
	}
	if err := safe.Cancel(t.Context(), second); err != nil {
		t.Error(err)
	}
	if n := len(must(fallback.Inspect(t.Context(), "e")).Limits[0].Buckets); n != 0 { // the first turn does not matter: no new turn comes before the second
		t.Errorf("the Fallback counts %d turns", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := safe.Wait(ctx, "e"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "none was booked") {
		t.Error(err)
	}
	server.Resume(t)
}

// TestLeaverThenNext checks that a caller that comes right after another one has given up can book
// that caller's turn, even for another number of units: the turn is given back first.
func TestLeaverThenNext(t *testing.T) {
	t.Parallel()
	cfg := pace.Config{Name: redistest.Key(t), Limits: parsed("3/1m"), MaxAhead: time.Hour, Timeout: time.Minute}
	for store, l := range map[string]*pace.Limiter{
		"memory": must(pace.NewLocal(cfg)), "Redis": must(pace.New(window.On(redistest.Client(t)), cfg)),
	} {
		t.Run(store, func(t *testing.T) {
			for round := range 30 {
				event := fmt.Sprint("e", round)
				first := must(l.ReserveN(t.Context(), event, 3)).At
				leaver, leave := context.WithCancel(t.Context())
				next, end := context.WithCancel(t.Context())
				var group sync.WaitGroup
				group.Go(func() {
					_ = l.WaitN(leaver, event, 3)
					_ = l.WaitN(next, event, 2)
				})
				equal(t, "the turn of the leaver", booked(t, l, event, 3, first).Sub(first), time.Minute)
				leave()
				if after := booked(t, l, event, 2, first).Sub(first); after != time.Minute {
					t.Fatalf("round %d: the next caller's turn is %v after the first one", round, after)
				}
				end()
				group.Wait()
			}
		})
	}
}

// booked waits until there is a turn of n units after the given time, and returns its time.
func booked(t *testing.T, l *pace.Limiter, event string, n int64, after time.Time) time.Time {
	t.Helper()
	for {
		for _, b := range must(l.Inspect(t.Context(), event)).Limits[0].Buckets {
			if b.Units == n && b.Last.After(after) {
				return b.Last
			}
		}
		<-time.After(time.Millisecond)
	}
}

// TestForeignValue checks that no method touches a value that is not a record, and that each error
// names the key.
func TestForeignValue(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t)
	l := must(pace.New(window.On(client), pace.Config{Name: redistest.Key(t), Limits: parsed("1/1s"), Timeout: time.Minute}))
	key := must(l.Inspect(t.Context(), "e")).Key
	r := must(l.Reserve(t.Context(), "other"))
	r.Event = "e"
	for _, value := range []string{"hello", "\x80", "\xc1", "\xc0\x00", strings.Repeat("\xc1", 40), strings.Repeat("\xe1", 13)} {
		if err := client.Do(t.Context(), client.B().Set().Key(key).Value(value).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		for name, do := range map[string]func(ctx context.Context) error{
			"Wait":    func(ctx context.Context) error { return l.Wait(ctx, "e") },
			"Reserve": func(ctx context.Context) error { _, err := l.Reserve(ctx, "e"); return err },
			"Due":     func(ctx context.Context) error { _, err := l.Due(ctx, r); return err },
			"Cancel":  func(ctx context.Context) error { return l.Cancel(ctx, r) },
			"Pause":   func(ctx context.Context) error { return l.Pause(ctx, "e", time.Second) },
			"Inspect": func(ctx context.Context) error { _, err := l.Inspect(ctx, "e"); return err },
		} {
			if err := do(t.Context()); err == nil || !strings.Contains(err.Error(), key) || errors.Is(err, pace.ErrOutage) {
				t.Errorf("%s of %q: %v", name, value, err)
			}
		}
		if got := must(client.Do(t.Context(), client.B().Get().Key(key).Build()).ToString()); got != value {
			t.Errorf("%q became %q", value, got)
		}
	}
}

// TestInspectOthers checks that Inspect shows turns under limits that the limiter does not have,
// after those under its own limits.
func TestInspectOthers(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000).UTC()
	cfg := pace.Config{Name: redistest.Key(t), Limits: parsed("1/1s", "5/1h", "3/1m"), Timeout: time.Minute, Now: func() time.Time { return now }}
	conn := window.On(redistest.Client(t))
	must(must(pace.New(conn, cfg)).Reserve(t.Context(), "e"))
	cfg.Limits = parsed("9/1m")
	s := must(must(pace.New(conn, cfg)).Inspect(t.Context(), "e"))
	bucket := []window.Bucket{{Last: now, Units: 1}}
	equal(t, "limits", s.Limits, []window.LimitState{{Usage: window.Usage{Limit: cfg.Limits[0], Used: 1, Remaining: 8, ResetAfter: time.Minute}, Buckets: bucket}})
	equal(t, "others", s.Others, []window.LimitState{
		{Usage: window.Usage{Limit: window.Limit{Per: time.Second}, Used: 1, ResetAfter: time.Second}, Buckets: bucket},
		{Usage: window.Usage{Limit: window.Limit{Per: time.Hour}, Used: 1, ResetAfter: time.Hour}, Buckets: bucket},
	})
}

// TestMistakes checks that errors for invalid configurations and arguments name the value and a
// remedy.
func TestMistakes(t *testing.T) {
	valid := func() pace.Config { return pace.Config{Name: "api", Limits: parsed("5/1s")} }
	change := func(do func(cfg *pace.Config)) error {
		cfg := valid()
		do(&cfg)
		_, err := pace.NewLocal(cfg)
		return err
	}
	l := must(pace.NewLocal(valid()))
	for _, test := range []struct {
		err  error
		want string
	}{
		{change(func(cfg *pace.Config) { cfg.Name = "" }), "choose 1 to 64"},
		{change(func(cfg *pace.Config) { cfg.Limits = nil }), "give at least one"},
		{change(func(cfg *pace.Config) { cfg.Limits[0].Max = 0 }), "choose 1 to 2^53 units"},
		{change(func(cfg *pace.Config) { cfg.Limits[0].Resolution = 7 * time.Millisecond }), "a Resolution of 7ms; leave it at 0"},
		{change(func(cfg *pace.Config) { cfg.Limits[0].Per = (1<<32 - 1) * time.Millisecond }), "a Per of 1193h2m47.295s, which the stored record uses"},
		{change(func(cfg *pace.Config) { cfg.MaxAhead = -1 }), "a MaxAhead of -1ns; choose whole milliseconds up to a day"},
		{change(func(cfg *pace.Config) { cfg.MaxAhead = 25 * time.Hour }), "a MaxAhead of 25h0m0s"},
		{change(func(cfg *pace.Config) { cfg.Secret = []byte("short") }), "at least 16"},
		{change(func(cfg *pace.Config) { cfg.Fallback = l }), "leave it out"},
		{l.Wait(t.Context(), ""), "the event is empty"},
		{l.WaitN(t.Context(), "e", 0), "at least 1 unit"},
		{l.WaitN(t.Context(), "e", 6), "more units than a limit can ever allow"},
		{errorOf(l.Due(t.Context(), pace.Reservation{})), "is not OK"},
		{l.Pause(t.Context(), "e", 25*time.Hour), "a pause of 25h0m0s"},
	} {
		if test.err == nil || !strings.Contains(test.err.Error(), test.want) || !strings.HasPrefix(test.err.Error(), "slidegate: ") {
			t.Errorf("%v, want %q", test.err, test.want)
		}
	}
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "pace.New") {
			t.Errorf("a zero limiter: %s", text)
		}
	}()
	_ = (&pace.Limiter{}).Wait(t.Context(), "e")
}
