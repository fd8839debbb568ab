package window_test

import (
	"testing"

	"github.com/slidegate/slidegate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

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
