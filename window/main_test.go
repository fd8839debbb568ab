package window_test

import (
	"flag"
	"testing"

	"github.com/slidegate/slidegate/internal/redistest"
)

// TestMain lets four tests run at the same time, unless -parallel says otherwise: those that do mostly wait.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	redistest.Main(m)
}

// hasOwnServer lets a test that shares no server run beside others in a short run. In a full run each has the machine for itself, since
// some print latencies.
func hasOwnServer(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Parallel()
	}
}

// unlessShort returns full, or short in a short run.
func unlessShort[T any](full, short T) T {
	if testing.Short() {
		return short
	}
	return full
}
