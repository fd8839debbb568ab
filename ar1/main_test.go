package ar1_test

import (
	"flag"
	"testing"

	"github.com/slidegate/slidegate/internal/redistest"
)

// TestMain runs eight tests side by side, however few cores there are: most wait for a server.
func TestMain(m *testing.M) {
	must("", flag.Set("test.parallel", "8"))
	redistest.Main(m)
}

// unlessShort returns full, or short in a short run.
func unlessShort[T any](full, short T) T {
	if testing.Short() {
		return short
	}
	return full
}
