package inspect

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/inflight"
)

var update = flag.Bool("update", false, "rewrite the golden files of package inflight")

// TestInflightGolden compares the reports on leases with golden files. It uses snapshots, because
// leases depend on the Redis clock.
func TestInflightGolden(t *testing.T) {
	at := time.Date(2025, time.March, 4, 14, 0, 0, 0, time.UTC)
	held := func(holder string, units int64, since, until time.Duration) inflight.Held {
		return inflight.Held{Holder: holder, Units: units, Token: at.Add(-since).UnixMicro(), Since: at.Add(-since), Until: at.Add(until)}
	}
	leases := []inflight.Held{held("web-1", 2, 48*time.Second, 6500*time.Millisecond), held("", 1, 20*time.Hour, 7*time.Second), held("web-2", 1, 3*time.Second, 7*time.Second)}
	for name, snap := range map[string]inflight.Snapshot{
		"":         {Max: 5, Used: 4, Token: leases[2].Token, Leases: leases},
		"-json":    {Max: 5, Used: 4, Token: leases[2].Token, Leases: leases},
		"-stored":  {Used: 4, Token: leases[2].Token, Leases: leases},
		"-lowered": {Max: 2, Used: 3, Token: leases[2].Token, Leases: []inflight.Held{held("web\x1b", 3, 0, 25*time.Hour)}},
		"-ended":   {Max: 5, Token: leases[2].Token},
	} {
		s := Subject{Inflight: true, Name: "exports", Event: "customer-42"}
		s.Redis.InitAddress = []string{localRedis}
		snap.Key, snap.At = "exports:{customer-42}:l", at
		st := s.inflightState(snap)
		st.decide(st.Limits)
		checkGolden(t, "../../testdata/inspect-inflight"+name+".golden", shown(t, st, name == "-json"))
	}
}

// shown returns the report for a state, as text or JSON.
func shown(t *testing.T, st *State, asJSON bool) string {
	t.Helper()
	var b strings.Builder
	if !asJSON {
		return report(output.ScreenOf(&b), st, false)
	}
	if err := output.JSON(&b, st); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func checkGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}
