package inflight_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestOutage stops Redis for longer than TTL. Without a Fallback, a lease must be lost. With a
// Fallback, the lease must stay alive, and be back in Redis after the outage. TestStates checks that a
// lease is lost before its units can be free for others.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := window.On(server.Client(t))
	cfg := inflight.Config{Name: "plain", Max: 2, TTL: ttl, Timeout: ttl / 4}
	plain := must(inflight.New(conn, cfg))
	cfg.Name = "local"
	cfg.Fallback = must(inflight.NewLocal(cfg))
	cfg.Name = "safe"
	safe := must(inflight.New(conn, cfg))
	lost, carried := taken(t, plain, "e"), taken(t, safe, "e")
	work, goesOn := lost.Context(t.Context()), carried.Context(t.Context())
	server.Pause(t)
	<-work.Done()
	if !errors.Is(context.Cause(work), inflight.ErrLost) || !strings.Contains(context.Cause(work).Error(), "not renewed within its TTL of 3s") || !errors.Is(context.Cause(work), inflight.ErrUncertain) && !errors.Is(context.Cause(work), inflight.ErrOutage) || lost.Left() > 0 {
		t.Error(context.Cause(work), lost.Left())
	}
	if _, _, err := plain.TryAcquire(t.Context(), "e"); !errors.Is(err, inflight.ErrOutage) && !errors.Is(err, inflight.ErrUncertain) {
		t.Error(err)
	}
	second, d, err := safe.TryAcquire(t.Context(), "e")
	if second == nil || err != nil || !d.Degraded || d.Cause == nil || second.Token() != 0 || d.Used != 2 {
		t.Fatalf("%v, %+v, %v", second, d, err)
	}
	denied(t, safe, "e")
	release(t, second) // this lease was never in Redis, so no call is needed
	second = taken(t, safe, "e")
	if goesOn.Err() != nil || carried.Left() <= 0 || carried.Token() != 0 {
		t.Error(context.Cause(goesOn), carried.Left(), carried.Token())
	}
	equal(t, "stats in the outage", safe.Stats(), inflight.Stats{Limiter: "safe", Held: 2, Degraded: 2})
	equal(t, "degraded in the outage", []bool{carried.Degraded(), second.Degraded()}, []bool{true, true})
	for _, l := range []*inflight.Lease{carried, second} {
		if err := l.Cause(); !errors.Is(err, inflight.ErrOutage) && !errors.Is(err, inflight.ErrUncertain) {
			t.Errorf("the cause of a lease in the Fallback: %v", err)
		}
	}
	server.Resume(t)
	redistest.Eventually(t, "the leases are back in Redis", func() bool { return carried.Token() != 0 && second.Token() != 0 })
	equal(t, "held in Redis", must(safe.Inspect(t.Context(), "e")).Used, 2)
	equal(t, "held by the Fallback", must(cfg.Fallback.Inspect(t.Context(), "e")).Used, 0)
	if goesOn.Err() != nil {
		t.Error(context.Cause(goesOn))
	}
	equal(t, "stats after it", safe.Stats(), inflight.Stats{Limiter: "safe", Held: 2})
	equal(t, "degraded after it", []bool{carried.Degraded(), second.Degraded()}, []bool{false, false})
	equal(t, "the causes after it", []error{carried.Cause(), second.Cause()}, []error{nil, nil})
	release(t, carried)
	release(t, second)
	equal(t, "held after the release", must(safe.Inspect(t.Context(), "e")).Used, 0)
}

// TestLostReplies loses replies to each kind of call. If a caller got no answer, its place must be
// released; if a renewal got no answer, the lease must be renewed again; and a release must be
// repeated.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	var faults redistest.Faults
	client := redistest.NewClient(t, func(o *rueidis.ClientOption) { faults.Break(o) })
	l := must(inflight.New(window.On(client), inflight.Config{Name: redistest.Key(t), Max: 2, TTL: ttl, Timeout: ttl / 3}))
	release(t, taken(t, l, "other")) // loads the script
	faults.LoseReply("acquire")
	if lease, _, err := l.TryAcquire(t.Context(), "e"); !errors.Is(err, inflight.ErrUncertain) {
		t.Fatal(lease, err)
	}
	redistest.Eventually(t, "the place is released", func() bool { return must(l.Inspect(t.Context(), "e")).Used == 0 })
	lease := taken(t, l, "e")
	work := lease.Context(t.Context())
	timers := redistest.Timers(1, time.Millisecond)
	for range 3 {
		faults.LoseReply("renew")
		<-time.After(ttl / 2)
	}
	if late := timers.Longest(); late < ttl/3 && (work.Err() != nil || lease.Left() <= 0) { // a machine that stops for longer may lose it
		t.Errorf("%v, though no timer was later than %v", context.Cause(work), late)
	}
	faults.LoseReply("release")
	release(t, lease)
	equal(t, "held", must(l.Inspect(t.Context(), "e")).Used, 0)
}

// TestForeignValue checks that no method touches a value that is not a record, and that each error
// names the key.
func TestForeignValue(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t)
	l := must(inflight.New(window.On(client), inflight.Config{Name: redistest.Key(t), Max: 1, TTL: time.Hour, Timeout: time.Minute}))
	lease := taken(t, l, "e")
	key := must(l.Inspect(t.Context(), "e")).Key
	if err := client.Do(t.Context(), client.B().Set().Key(key).Value("hello").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(ctx context.Context) error{
		"TryAcquire": func(ctx context.Context) error { _, _, err := l.TryAcquire(ctx, "e"); return err },
		"Acquire":    func(ctx context.Context) error { _, err := l.Acquire(ctx, "e"); return err },
		"Inspect":    func(ctx context.Context) error { _, err := l.Inspect(ctx, "e"); return err },
		"Reset":      func(ctx context.Context) error { return l.Reset(ctx, "e") },
		"Release":    lease.Release,
	} {
		if err := do(t.Context()); err == nil || !strings.Contains(err.Error(), key) || errors.Is(err, inflight.ErrOutage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	equal(t, "value", must(client.Do(t.Context(), client.B().Get().Key(key).Build()).ToString()), "hello")
}

// TestMistakes checks that errors for invalid configurations and arguments name the value and a
// remedy.
func TestMistakes(t *testing.T) {
	change := func(do func(cfg *inflight.Config)) error {
		cfg := inflight.Config{Name: "jobs", Max: 5}
		do(&cfg)
		_, err := inflight.NewLocal(cfg)
		return err
	}
	l := must(inflight.NewLocal(inflight.Config{Name: "jobs", Max: 5}))
	try := func(event string, n int64) error {
		_, _, err := l.TryAcquireN(t.Context(), event, n)
		return err
	}
	_, with := l.With(0)
	onRedis := must(inflight.New(window.On(redistest.Client(t)), inflight.Config{Name: "jobs", Max: 5}))
	_, fallback := inflight.New(window.On(redistest.Client(t)), inflight.Config{Name: "jobs", Max: 5, Fallback: onRedis})
	for _, test := range []struct {
		err  error
		want string
	}{
		{change(func(cfg *inflight.Config) { cfg.Name = "" }), "choose 1 to 64"},
		{change(func(cfg *inflight.Config) { cfg.Max = 0 }), "limiter \"jobs\" has a Max of 0; choose 1 to 1000 units"},
		{change(func(cfg *inflight.Config) { cfg.Max = 1001 }), "a Max of 1001"},
		{change(func(cfg *inflight.Config) { cfg.TTL = time.Microsecond }), "a TTL of 1µs; choose whole milliseconds"},
		{change(func(cfg *inflight.Config) { cfg.TTL = 25 * time.Hour }), "a TTL of 25h0m0s"},
		{change(func(cfg *inflight.Config) { cfg.TTL = 700 * time.Millisecond }), "a TTL of 700ms and a Timeout of 250ms"},
		{change(func(cfg *inflight.Config) { cfg.Timeout = -1 }), "has a Timeout of -1ns; choose more than 0, or 0 for 250ms"},
		{change(func(cfg *inflight.Config) { cfg.MaxHold = -1 }), "has a MaxHold of -1ns; choose more than the TTL of 10s"},
		{change(func(cfg *inflight.Config) { cfg.MaxHold = time.Second }), "a MaxHold of 1s, less than the TTL of 10s"},
		{change(func(cfg *inflight.Config) { cfg.Holder = strings.Repeat("x", 33) }), "a Holder of 33 bytes; choose at most 32"},
		{change(func(cfg *inflight.Config) { cfg.Secret = []byte("short") }), "at least 16"},
		{change(func(cfg *inflight.Config) { cfg.Fallback = l }), "leave it out"},
		{fallback, "has a Fallback \"jobs\" on Redis; create it with NewLocal"},
		{with, "limiter \"jobs\" has a Max of 0; choose 1 to 1000 units"},
		{try("", 1), "the event is empty"},
		{try("e", 0), "at least 1 unit"},
		{try("e", 6), "6 units under a Max of 5: more units than a limit can ever allow"},
	} {
		if test.err == nil || !strings.Contains(test.err.Error(), test.want) || !strings.HasPrefix(test.err.Error(), "slidegate: ") {
			t.Errorf("%v, want %q", test.err, test.want)
		}
	}
	panics(t, "create one with inflight.New", func() { _, _ = (&inflight.Limiter{}).Acquire(t.Context(), "e") })
	var none *inflight.Lease
	panics(t, "this lease is nil", func() { none.Context(t.Context()) })
	if err := none.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// panics checks that do panics with the given text.
func panics(t *testing.T, want string, do func()) {
	t.Helper()
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, want) {
			t.Errorf("%s, want %q", text, want)
		}
	}()
	do()
}
