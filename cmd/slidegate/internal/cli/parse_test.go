package cli

import (
	"runtime/debug"
	"testing"
)

// TestVersionOf checks that a program without a version explains why.
func TestVersionOf(t *testing.T) {
	for v, want := range map[string]string{
		"v0.1.0":  "slidegate v0.1.0, go1.25.0",
		"(devel)": "slidegate unknown commit (go build records it, go run does not), go1.25.0",
	} {
		if got := versionOf(&debug.BuildInfo{GoVersion: "go1.25.0", Main: debug.Module{Version: v}}); got != want {
			t.Errorf("%s: %q, want %q", v, got, want)
		}
	}
}
