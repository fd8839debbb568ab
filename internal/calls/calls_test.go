package calls_test

import (
	"testing"

	"github.com/slidegate/slidegate/internal/calls"
)

// TestPanic checks that if a call in another goroutine panics, the panic reaches the caller once
// all calls are done.
func TestPanic(t *testing.T) {
	done := make([]bool, 3)
	defer func() {
		if value := recover(); value != "a mistake" || !done[1] || !done[2] {
			t.Errorf("%v, %v", value, done)
		}
	}()
	calls.Concurrently(len(done), func(int) bool { return false }, func(i int) {
		if i == 0 {
			panic("a mistake")
		}
		done[i] = true
	})
}
