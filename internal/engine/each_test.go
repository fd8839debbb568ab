package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
)

// clusterClient returns a client of a cluster.
func clusterClient(t *testing.T, nodes []*server) rueidis.Client {
	t.Helper()
	client := nodes[0].client(t, func(o *rueidis.ClientOption) {
		o.ForceSingleClient, o.DialCtxFn = false, dialNodes(nodes)
	})
	t.Cleanup(func() {
		for _, s := range nodes {
			s.close()
		}
	})
	return client
}

// TestEachInOrder checks that the answers are those to attempts one after the other, in the order
// of the events. An event can occur several times.
func TestEachInOrder(t *testing.T) {
	events := []string{"a", "b", "a", "c", "a", "a", "b", "a", "a", "a", "c", "d"}
	var queries []query
	forEachMerging(t, func(t *testing.T, _ string, s *server, l *Limiter) {
		queries = queries[:0]
		for _, event := range events {
			queries = append(queries, query{l.Attempt(), event, 1})
		}
		answers := l.AttemptEach(t.Context(), events)
		for i, c := range sequential(t, l, queries) {
			wantError(t, events[i], answers[i].Err, nil)
			wantEqual(t, fmt.Sprint(i), answers[i].Reply, c.Reply)
		}
		wantEqual(t, "script calls", len(s.scriptCalls()), 4)
	})
}

// TestEachRefuses checks that only an invalid event gets an error.
func TestEachRefuses(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		answers := l.AttemptEach(t.Context(), []string{"a", "", "b"})
		for i, want := range []error{nil, ErrEmptyEvent, nil} {
			wantError(t, fmt.Sprint(i), answers[i].Err, want)
		}
		wantEqual(t, "no events", len(l.AttemptEach(t.Context(), nil)), 0)
	})
}

// TestEachOfManyEvents checks that each of many events is asked about once.
func TestEachOfManyEvents(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		for i, a := range l.AttemptEach(t.Context(), numbered(maxRound+100)) {
			if a.Err != nil || !a.Allowed || a.Row(0)[0] != 1 {
				t.Fatalf("%d: %+v", i, a)
			}
		}
		wantEqual(t, "executed", s.executed(), maxRound+100)
	})
}

// TestEachTakesOneTimeout checks that a server that hangs costs one Timeout, however many events
// there are. Requests that were not sent then have a certain error.
func TestEachTakesOneTimeout(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		s.hold()
		got := startEach(t.Context(), l, numbered(10_000)).wait()
		wantEqual(t, "took", got.took, time.Second)
		for i, a := range got.answers {
			if i < maxRound && !isOutage(a.Err) {
				t.Fatalf("%d: %v", i, a.Err)
			} else if i >= maxRound {
				wantError(t, fmt.Sprint(i), a.Err, ErrOutage)
			}
		}
	})
}

// TestEachTakesOneContext checks that AllowEach takes no longer than its context.
func TestEachTakesOneContext(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		s.hold()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		got := startEach(ctx, l, numbered(maxRound+1000)).wait()
		wantEqual(t, "took", got.took, 300*time.Millisecond)
		for _, a := range got.answers {
			wantError(t, "an event", a.Err, context.DeadlineExceeded)
		}
	})
}

// TestShardThatHangs checks that a large AllowEach answers the events on other shards.
func TestShardThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newCluster(2)
		var d reportLog
		l := limiter(t, clusterClient(t, nodes), d.record)
		events := numbered(maxRound + 1000)
		bad := func(event string) bool { return rangeOf(l, event) >= slotRanges/2 }
		nodes[1].hold()
		got := startEach(t.Context(), l, events).wait()
		wantEqual(t, "took", got.took, time.Second)
		for i, a := range got.answers {
			if bad(events[i]) != isOutage(a.Err) || !bad(events[i]) && a.Err != nil {
				t.Fatalf("%s on slot range %d: %v", events[i], rangeOf(l, events[i]), a.Err)
			}
		}
		wantEqual(t, "outages", len(d.read()), slotRanges/2)
		wantEqual(t, "executed on the other shard", nodes[0].executed(), len(slices.DeleteFunc(events, bad)))
	})
}

// TestBreakerPerSlotRange checks that an outage of one sixty-fourth of the hash slots does not
// affect the others.
func TestBreakerPerSlotRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newCluster(2)
		var d reportLog
		l := limiter(t, clusterClient(t, nodes), d.record)
		event := "event 0"
		bad := rangeOf(l, event)
		for _, s := range nodes {
			s.chooseActions(func(c command) action {
				if c.key == l.Key(event) {
					return refusal("ERR broken")
				}
				return action{}
			})
		}
		for range 3 {
			wantError(t, event, attemptOne(t, l, event).err, ErrOutage)
		}
		wantEqual(t, "reports", d.read(), []string{fmt.Sprintf("0s: outage began %d", bad)})
		for _, other := range numbered(200) {
			if rangeOf(l, other) == bad {
				wantOpen(t, attemptOne(t, l, other))
			} else {
				mustAllow(t, l, other)
			}
		}
	})
}
