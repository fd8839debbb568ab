package faulttest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// EachAfterScriptFlush checks that AllowEach decides all events, and the attempts for each event in
// order, while SCRIPT FLUSH is called again and again: on the nodes of a cluster, and on a server,
// where script calls are for several events.
func EachAfterScriptFlush(t *testing.T, open Open) {
	server := redistest.Start(t)
	for name, to := range map[string]struct {
		admin   rueidis.Client
		options rueidis.ClientOption
	}{"cluster": {redistest.Cluster(t), redistest.ClusterOptions(t)}, "server": {server.Client(t), server.Options(nil)}} {
		t.Run(name, func(t *testing.T) {
			cfg := window.Config{Name: redistest.Key(t), Limits: parsed("2/1h"), Timeout: time.Minute} // on a busy machine, a call may need many tries
			calls := &redistest.Calls{}
			calls.Count(&to.options)
			l := must(window.New(open(t, to.options), cfg))
			if name == "server" {
				AwaitGroups(t, l, calls)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range redistest.UnlessShort(300, 50) {
					for _, node := range to.admin.Nodes() {
						node.Do(context.Background(), node.B().ScriptFlush().Build())
					}
				}
			}()
			for round, flushing := 0, true; flushing; round++ {
				select {
				case <-done:
					flushing = false
				default:
				}
				events := numbered(50)
				for i := range events {
					events[i] += fmt.Sprint(" ", round)
				}
				for i, r := range l.AllowEach(t.Context(), append(append(events, events...), events...)) {
					if r.Err != nil || r.Allowed != (i < 100) || r.Usage[0].Used != int64(min(2, 1+i/50)) {
						t.Fatalf("round %d, %d: %+v", round, i, r)
					}
				}
				for i, event := range events {
					events[i] = "once " + event
				}
				for i, r := range l.AllowEach(t.Context(), events) {
					if r.Err != nil || r.Usage[0].Used != 1 {
						t.Fatalf("round %d, %d, once: %+v", round, i, r)
					}
				}
			}
			t.Logf("%d script calls for several events", calls.Several.Load())
		})
	}
}

// EachInTime checks that AllowEach returns after one Timeout if the server hangs, regardless of the
// number of events, and that the Fallback decides.
func EachInTime(t *testing.T, open Open) {
	t.Parallel()
	server := redistest.Start(t)
	var seen Outages
	cfg := window.Config{Name: "each", Limits: parsed("1/1h"), Timeout: Timeout, Observe: seen.Observe}
	conn := open(t, server.Options(nil))
	l := must(window.New(conn, cfg))
	cfg.Fallback = must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1/1h")}))
	degraded := must(window.New(conn, cfg))
	AwaitAnswer(t, l, "warm")
	server.Pause(t)
	events, begin := numbered(redistest.UnlessShort(5000, 4000)), time.Now()
	results := l.AllowEach(t.Context(), events)
	if took := time.Since(begin); took < Timeout || took > Timeout+Slack {
		t.Errorf("took %v", took)
	}
	uncertain, unsent := 0, 0
	for _, r := range results {
		if errors.Is(r.Err, window.ErrUncertain) {
			uncertain++
		} else if errors.Is(r.Err, window.ErrOutage) {
			unsent++
		}
	}
	if uncertain == 0 || uncertain > 4*128 || uncertain+unsent != len(events) { // at most four senders hang, each with a batch
		t.Errorf("%d may have been counted, %d were not", uncertain, unsent)
	}
	for i, r := range degraded.AllowEach(t.Context(), append(events[:10:10], events[:10]...)) {
		if r.Err != nil || !r.Degraded || r.Allowed != (i < 10) {
			t.Errorf("%d: %+v", i, r)
		}
	}
	server.Resume(t)
	AwaitRecovery(t, l)
	patient := must(window.New(conn, window.Config{Name: "patient", Limits: parsed("1/1h"), Timeout: -1}))
	for i, r := range patient.AllowEach(t.Context(), append(events, events...)) {
		if r.Err != nil || r.Allowed != (i < len(events)) {
			t.Fatalf("%d: %+v", i, r)
		}
	}
}

// EachOnDeadServer checks that AllowEach returns after about one Timeout if the server refuses
// connections, regardless of the number of events, and that no outcome is uncertain.
func EachOnDeadServer(t *testing.T, open Open) {
	t.Parallel()
	server := redistest.Start(t)
	conn := open(t, server.Options(nil))
	const timeout = 3 * time.Second // retries end after a second, so the machine may stall for two before a dial seems to hang
	l := must(window.New(conn, window.Config{Name: "each", Limits: parsed("1/1h"), Timeout: timeout}))
	server.Kill(t)
	awaitRefusals(t, conn)
	begin := time.Now()
	for i, r := range l.AllowEach(t.Context(), numbered(40_000)) {
		if !errors.Is(r.Err, window.ErrOutage) || errors.Is(r.Err, window.ErrUncertain) {
			t.Fatalf("%d: %+v", i, r)
		}
	}
	if took := time.Since(begin); took > 3*timeout { // ten rounds of a second each would take longer
		t.Errorf("took %v, with a Timeout of %v", took, timeout)
	}
}
