package ar1_test

import (
	"testing"

	"github.com/slidegate/slidegate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.MainSideBySide(m) }

// unlessShort returns full, or short in a short run.
func unlessShort[T any](full, short T) T {
	if testing.Short() {
		return short
	}
	return full
}
