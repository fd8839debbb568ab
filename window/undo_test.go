package window_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// undoers are limiters on one connection.
type undoers []*window.Limiter

// newUndoers returns limiters that have several kinds of limits.
func newUndoers(t *testing.T, conn *window.Connection, change func(*window.Config)) (all undoers) {
	t.Helper()
	for i, limits := range []string{"5/1h", "5/1m 9/1h", "50/1h@1m", "2/24h"} {
		cfg := window.Config{Name: fmt.Sprint(redistest.Key(t), i), Limits: parsed(strings.Split(limits, " ")...), Timeout: time.Minute}
		change(&cfg)
		all = append(all, must(window.New(conn, cfg)))
	}
	return all
}

// count counts two units of the event under each limiter. It returns undos that alternate between
// refunding one unit and resetting the event.
func (all undoers) count(t *testing.T, event string) (undos []window.Undo) {
	t.Helper()
	for i, l := range all {
		must(l.Allow(t.Context(), event))
		d := must(l.Allow(t.Context(), event))
		undos = append(undos, window.Undo{Limiter: l, Event: event, Decision: d, Reset: i%2 == 1})
	}
	return undos
}

// used returns how many units each limiter counts.
func (all undoers) used(t *testing.T, event string) (used []int64) {
	t.Helper()
	for _, l := range all {
		used = append(used, usedOf(t, l, event))
	}
	return used
}

func wantUnits(t *testing.T, where string, got, want []int64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: units in use %d, want %d", where, got, want)
	}
}

// onOneServer returns limiters on one server, and the calls of their client. It waits until it is
// proved that there is only one server.
func onOneServer(t *testing.T, server *redistest.Server, change func(*window.Config)) (undoers, *redistest.Calls) {
	t.Helper()
	calls := &redistest.Calls{}
	all := newUndoers(t, window.On(server.NewClient(t, calls.Count)), change)
	awaitJoint(t, calls, all...)
	return all, calls
}

// TestUndoAll checks that UndoAll refunds and resets, even if its context is done: on one server by
// one script call, on a cluster, in memory, and if a key occurs twice. It must also end
// cached denials.
func TestUndoAll(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	undo := func(undos []window.Undo) {
		if err := errors.Join(window.UndoAll(ended, undos...)...); err != nil {
			t.Error(err)
		}
	}
	want := []int64{1, 0, 1, 0}
	cached := func(cfg *window.Config) { cfg.DenialCache = 10 }
	all, calls := onOneServer(t, redistest.Start(t), cached)
	undo(all.count(t, "loads the script"))
	undos := all.count(t, "e")
	denied := must(all[3].Allow(t.Context(), "e"))
	before := calls.Scripts.Load()
	undo(undos)
	if n := calls.Scripts.Load() - before; n != 1 {
		t.Errorf("%d script calls", n)
	}
	wantUnits(t, "one server", all.used(t, "e"), want)
	if d := must(all[3].Allow(t.Context(), "e")); denied.Allowed || !d.Allowed {
		t.Errorf("%+v before a reset, %+v after it", denied, d)
	}

	undos = all.count(t, "twice")
	undo(append(undos, window.Undo{Limiter: all[0], Event: "twice", Reset: true}))
	wantUnits(t, "a key occurs twice", all.used(t, "twice"), []int64{0, 0, 1, 0})

	all = newUndoers(t, window.On(redistest.Cluster(t)), cached)
	undo(all.count(t, "e"))
	wantUnits(t, "a cluster", all.used(t, "e"), want)

	all = append(all, must(window.NewLocal(window.Config{Name: "local", Limits: parsed("5/1h")})))
	undo(all.count(t, "memory"))
	wantUnits(t, "one in memory", all.used(t, "memory"), append(want, 1))
}

// TestUndoneAlone checks that an Undo that is invalid, or whose key has a foreign value, does not
// make the others fail. If no reply comes, each error names its own key.
func TestUndoneAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	all, _ := onOneServer(t, server, func(cfg *window.Config) { cfg.Timeout = 3 * time.Second })
	undos := all.count(t, "e")
	key := must(all[1].Inspect(t.Context(), "e")).Key
	if err := server.Do(t.Context(), "RPUSH", key+"2", "foreign").Error(); err != nil {
		t.Fatal(err)
	}
	if err := server.Do(t.Context(), "RENAME", key+"2", key).Error(); err != nil {
		t.Fatal(err)
	}
	errs := window.UndoAll(t.Context(), append(undos, window.Undo{Limiter: all[0], Reset: true})...)
	failed := func(err error) bool { return err != nil }
	if err := errs[1]; !failed(err) || !strings.Contains(err.Error(), key) || !errors.Is(errs[4], window.ErrEmptyEvent) || slices.ContainsFunc([]error{errs[0], errs[2], errs[3]}, failed) {
		t.Errorf("%q", errs)
	}
	wantUnits(t, "the others", []int64{usedOf(t, all[0], "e"), usedOf(t, all[2], "e"), usedOf(t, all[3], "e")}, []int64{1, 1, 0})

	undos = all.count(t, "f")
	server.Pause(t)
	errs = window.UndoAll(t.Context(), undos...)
	server.Resume(t)
	for i, err := range errs {
		if !errors.Is(err, window.ErrUncertain) || strings.Count(err.Error(), "{f}") != 1 || !strings.Contains(err.Error(), fmt.Sprintf("%d:{f}", i)) {
			t.Errorf("undo %d: %v", i, err)
		}
	}
}

// TestUndoInFallbacks checks that a Reset also forgets the event in the Fallback, and that
// decisions of a Fallback are refunded there.
func TestUndoInFallbacks(t *testing.T) {
	t.Parallel()
	var fallbacks undoers
	server := redistest.Start(t)
	all, _ := onOneServer(t, server, func(cfg *window.Config) {
		fallbacks = append(fallbacks, must(window.NewLocal(window.Config{Name: "local", Limits: cfg.Limits})))
		cfg.Timeout, cfg.Fallback = 200*time.Millisecond, fallbacks[len(fallbacks)-1]
	})
	server.Pause(t)
	undos := all.count(t, "e")
	wantUnits(t, "counted by the Fallbacks", fallbacks.used(t, "e"), []int64{2, 2, 2, 2})
	window.UndoAll(t.Context(), undos...) // the resets fail in Redis
	wantUnits(t, "the Fallbacks during an outage", fallbacks.used(t, "e"), []int64{1, 0, 1, 0})
	server.Resume(t)

	for _, l := range fallbacks {
		must(l.Allow(t.Context(), "f"))
	}
	for deadline := time.Now().Add(time.Minute); ; <-time.After(50 * time.Millisecond) {
		err := errors.Join(window.UndoAll(t.Context(), window.Undo{Limiter: all[1], Event: "f", Reset: true}, window.Undo{Limiter: all[3], Event: "f", Reset: true})...)
		if err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	wantUnits(t, "the Fallbacks after it", fallbacks.used(t, "f"), []int64{1, 0, 1, 0})
}

// TestUndoWithoutLimiter checks that an undo that has no limiter is an error, and that the others are
// undone.
func TestUndoWithoutLimiter(t *testing.T) {
	l := must(window.NewLocal(window.Config{Name: "l", Limits: parsed("1/1h")}))
	must(l.Allow(t.Context(), "e"))
	errs := window.UndoAll(t.Context(), window.Undo{}, window.Undo{Limiter: l, Event: "e", Reset: true}, window.Undo{Limiter: &window.Limiter{}})
	if errs[0] == nil || errs[1] != nil || errs[2] == nil || !must(l.Peek(t.Context(), "e")).Allowed {
		t.Errorf("%v", errs)
	}
}
