package cluster_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestEachInTime kills one master and pauses another. AllowEach must still return within one
// Timeout, and by then the third shard must have decided on all of its events.
func TestEachInTime(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills one master and pauses another")
	}
	nodes := redistest.Replicated(t)
	noCoverage.set(t, nodes)
	of := map[string]limiter{}
	for _, k := range everyKind {
		of[k.name] = k.newWithShortTimeout(t, nodes.Options(nil), perMonth(1))
	}
	killed, paused := nodes.MasterOf(t, slotOf(shardEvents[0][0])), nodes.MasterOf(t, slotOf(shardEvents[1][0]))
	nodes.AwaitVotes(t)
	killed.Kill(t)
	paused.Pause(t)
	eachClient(t, func(t *testing.T, k kind) {
		t.Parallel() // before a replica takes over
		l := of[k.name]
		events := make([]string, 2000)
		for i := range events {
			events[i] = fmt.Sprint("203.0.113.", i)
		}
		begin := time.Now()
		results := l.AllowEach(t.Context(), events)
		if took := time.Since(begin); took > timeout+900*time.Millisecond { // two rounds would take longer
			t.Errorf("took %v, with a Timeout of %v", took, timeout)
		}
		for i, r := range results {
			switch shard := slotOf(events[i]) * 3 / 16384; {
			case shard == 2 && !shared(events[i]) && (r.Err != nil || !r.Allowed):
				t.Fatalf("%s, of a healthy master: %+v", events[i], r)
			case shard == 0 && !errors.Is(r.Err, window.ErrOutage) && !errors.Is(r.Err, window.ErrUncertain):
				t.Fatalf("%s, of a dead master: %+v", events[i], r)
			}
		}
	})
}
