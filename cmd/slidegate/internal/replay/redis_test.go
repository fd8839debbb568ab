package replay

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/connect"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/estimator"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestIdleEventsLeaveRedis checks that the keys of idle events are removed during the replay, and
// not just at its end.
func TestIdleEventsLeaveRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it needs many lines")
	}
	var lines strings.Builder
	for n := range 20_000 { // a thousand events in rotation
		fmt.Fprintf(&lines, "%d,event-%d\n", n/100, n%1000)
	}
	for n := range 100_000 { // each event occurs once
		fmt.Fprintf(&lines, "%d,once-%d\n", 10_000+n, n)
	}
	server := redistest.Start(t)
	decideOn(t, server, lines.String())
	if n := keysOn(t, server); n == 0 || n > 50_000 {
		t.Errorf("%d keys are left of 101,000", n)
	}
}

// TestForgetUnderLoad checks that no key remains of any worker's events, although workers decide
// and forget at the same time.
func TestForgetUnderLoad(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	for n := range 5000 {
		fmt.Fprintf(&lines, "%d,event-%d\n", n/100, n%1000)
	}
	server := redistest.Start(t)
	r := decideOn(t, server, lines.String())
	if n := keysOn(t, server); n != 1000 {
		t.Errorf("%d keys of 1000 events", n)
	}
	if err := r.forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := keysOn(t, server); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// decideOn decides on a log using a server, and keeps few idle events.
func decideOn(t *testing.T, server *redistest.Server, lines string) *replay {
	t.Helper()
	var to connect.Addresses
	if err := to.Add(server.Addr()); err != nil {
		t.Fatal(err)
	}
	r, err := newReplay(t.Context(), flags.Sets{{{Max: 5, Per: time.Second}}}, estimator.Window, to, false, 2*inFlight)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	log, err := logs.OpenText("a log", lines, logs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.decideAll(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	return r
}

func keysOn(t *testing.T, server *redistest.Server) int64 {
	t.Helper()
	n, err := server.Do(t.Context(), "DBSIZE").AsInt64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRedisDies checks that the error does not say whether the library counted the attempt, because
// that does not help a user who replays a log.
func TestRedisDies(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var to connect.Addresses
	if err := to.Add(server.Addr()); err != nil {
		t.Fatal(err)
	}
	r, err := newReplay(t.Context(), flags.Sets{defaultLimits}, estimator.Window, to, false, maxIdle)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	w, a := r.workers[0], logs.Attempt{At: time.Unix(1, 0), Event: "alice", Units: 1, Times: 1}
	if err := w.decide(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	server.Kill(t)
	want := regexp.MustCompile(`^--redis ` + server.Addr() + ` failed \(.+\); replay again when it works, or leave out --redis to decide in memory$`)
	for name, err := range map[string]error{"decide": w.decide(t.Context(), a), "forget": r.forget(t.Context())} {
		if err == nil || !want.MatchString(err.Error()) || strings.Contains(err.Error(), "counted") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
