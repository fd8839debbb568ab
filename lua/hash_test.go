package lua

import "testing"

// TestHashes checks that each script has the hash that a server computes.
func TestHashes(t *testing.T) {
	scripts := map[string]*Script{
		"Window": Window, "AR1": AR1, "Pace": Pace, "Inflight": Inflight, "Overrides": Overrides, "Probe": Probe,
	}
	for _, verb := range []string{"allow", "counteach", "refund", "undo", "joint", "inspect"} {
		scripts[verb] = families[verb]
	}
	for name, s := range scripts {
		if want := New(s.Source).Hash; s.Hash != want {
			t.Errorf("%s has the hash %q, want %q", name, s.Hash, want)
		}
	}
}
