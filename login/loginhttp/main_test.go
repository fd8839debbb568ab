package loginhttp_test

import (
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// TestMain runs the tests, and stops the servers that they started.
func TestMain(m *testing.M) { redistest.Main(m) }
