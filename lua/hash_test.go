package lua

import (
	"crypto/sha1"
	"encoding/hex"
	"testing"
)

// TestHashes checks that each script has the hash that a server computes.
func TestHashes(t *testing.T) {
	for name, source := range map[string]string{
		"Window": Window, "AR1": AR1, "Pace": Pace, "Inflight": Inflight, "Overrides": Overrides, "Probe": Probe,
	} {
		sum := sha1.Sum([]byte(source))
		if want := hex.EncodeToString(sum[:]); hashes[source] != want {
			t.Errorf("%s has the hash %q, want %q", name, hashes[source], want)
		}
	}
}
