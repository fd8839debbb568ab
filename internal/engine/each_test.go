package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/pipeline"
	"github.com/slidegate/slidegate/internal/pipeline/servertest"
)

// TestEachInOrder checks that the answers are those that successive attempts would get, in the
// order of the events. An event can occur several times.
func TestEachInOrder(t *testing.T) {
	events := []string{"a", "b", "a", "c", "a", "a", "b", "a", "a", "a", "c", "d"}
	var queries []query
	forEachMerging(t, func(t *testing.T, _ string, s *servertest.Server, l *Limiter) {
		queries = queries[:0]
		for _, event := range events {
			queries = append(queries, query{Allow, event, 1})
		}
		answers := decideEach(t.Context(), l, events)
		for i, c := range sequential(t, l, queries) {
			wantError(t, events[i], answers[i].err, nil)
			wantEqual(t, fmt.Sprint(i), answers[i].Reply, c.Reply)
		}
		wantEqual(t, "script calls", len(s.Ran()), 4)
	})
}

// TestPeeksAreOneCall checks that all peeks at the same event share one script call and its answer.
func TestPeeksAreOneCall(t *testing.T) {
	forEachMerging(t, func(t *testing.T, _ string, s *servertest.Server, l *Limiter) {
		_ = ask(t.Context(), l, Allow, "a", 1)
		one, before := ask(t.Context(), l, Peek, "a", 1), len(s.Ran())
		replies, errs := l.DecideEach(t.Context(), Peek, []string{"a", "b", "a"}, nil)
		for i, event := range []string{"a", "b", "a"} {
			wantError(t, event, errs[i], nil)
			wantEqual(t, event, replies[i].Row(0)[0] == one.Row(0)[0], event == "a")
		}
		wantEqual(t, "script calls", len(s.Ran())-before, 2)
	})
}

// TestEachRefuses checks that an invalid event gets an error, and that the other events are
// decided.
func TestEachRefuses(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := limiter(t, s.Client(t))
		answers := decideEach(t.Context(), l, []string{"a", "", "b"})
		for i, want := range []error{nil, ErrEmptyEvent, nil} {
			wantError(t, fmt.Sprint(i), answers[i].err, want)
		}
		wantEqual(t, "no events", len(decideEach(t.Context(), l, nil)), 0)
	})
}

// TestEachOfManyEvents checks that exactly one request is sent for each of many events.
func TestEachOfManyEvents(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := limiter(t, s.Client(t))
		for i, a := range decideEach(t.Context(), l, numbered(maxRound+100)) {
			if a.err != nil || !a.Allowed || a.Row(0)[0] != 1 {
				t.Fatalf("%d: %+v", i, a)
			}
		}
		wantEqual(t, "executed", s.Executed(), maxRound+100)
	})
}

// TestEachTakesOneTimeout checks that if the server hangs, AllowEach returns after one Timeout,
// regardless of the number of events. The error for an event that was not sent must match ErrOutage:
// it was certainly not counted.
func TestEachTakesOneTimeout(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := limiter(t, s.Client(t))
		s.Hold()
		got := startEach(t.Context(), l, numbered(10_000)).wait()
		wantEqual(t, "took", got.took, time.Second)
		for i, a := range got.answers {
			if i < maxRound && !pipeline.IsOutage(a.err) {
				t.Fatalf("%d: %v", i, a.err)
			} else if i >= maxRound {
				wantError(t, fmt.Sprint(i), a.err, pipeline.ErrOutage)
			}
		}
	})
}

// TestPeeksAreNeverUncertain checks that a peek that gets no reply never returns ErrUncertain, because
// a peek counts nothing.
func TestPeeksAreNeverUncertain(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := limiter(t, s.Client(t))
		s.Hold()
		_, errs := l.DecideEach(t.Context(), Peek, numbered(maxRound+100), nil)
		for i, err := range errs {
			if !errors.Is(err, pipeline.ErrOutage) || errors.Is(err, pipeline.ErrUncertain) {
				t.Fatalf("%d: %v", i, err)
			}
		}
	})
}

// TestEachTakesOneContext checks that AllowEach returns shortly before its context's deadline.
func TestEachTakesOneContext(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := limiter(t, s.Client(t))
		s.Hold()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		got := startEach(ctx, l, numbered(maxRound+1000)).wait()
		wantEqual(t, "took", got.took, 280*time.Millisecond)
		for _, a := range got.answers {
			wantError(t, "an event", a.err, context.DeadlineExceeded)
		}
	})
}

// TestShardThatHangs checks that if one shard hangs, a large AllowEach decides the events on the
// other shards.
func TestShardThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := servertest.NewCluster(2)
		var d reportLog
		l := limiter(t, servertest.ClusterClient(t, nodes), d.record)
		events := numbered(maxRound + 1000)
		bad := func(event string) bool { return rangeOf(l, event) >= pipeline.Ranges/2 }
		nodes[1].Hold()
		got := startEach(t.Context(), l, events).wait()
		wantEqual(t, "took", got.took, time.Second)
		for i, a := range got.answers {
			if bad(events[i]) != pipeline.IsOutage(a.err) || !bad(events[i]) && a.err != nil {
				t.Fatalf("%s on slot range %d: %v", events[i], rangeOf(l, events[i]), a.err)
			}
		}
		wantEqual(t, "outages", len(d.read()), pipeline.Ranges/2)
		wantEqual(t, "executed on the other shard", nodes[0].Executed(), len(slices.DeleteFunc(events, bad)))
	})
}

// TestLateCallersAreNotSent checks that nothing is sent for a caller whose context is already done.
func TestLateCallersAreNotSent(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := limiter(t, s.Client(t))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, got := range append(decideEach(ctx, l, []string{"a", "b"}), answer{err: ask(ctx, l, Allow, "a", 1).err}) {
			wantError(t, "late", got.err, context.Canceled)
			if pipeline.IsOutage(got.err) || !strings.Contains(got.err.Error(), "nothing was sent") {
				t.Error(got.err)
			}
		}
		wantEqual(t, "received", len(s.Received()), 0)
	})
}
