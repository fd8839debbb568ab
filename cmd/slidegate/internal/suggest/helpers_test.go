package suggest

import (
	"testing"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
)

// read returns the history of a log.
func read(t *testing.T, log string) *History {
	t.Helper()
	r, err := logs.OpenText("a log", log, logs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h, err := Read(r)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
