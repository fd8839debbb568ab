package ar1_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/ar1"
)

// TestPage compares the tables of docs/algorithm.md with a limiter.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../docs/algorithm.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"1/10s", "2/10s", "5/10s", "100/10s", "1000/10s"} {
		if row := row(t, text); !strings.Contains(string(page), row) {
			t.Errorf("docs/algorithm.md does not contain %s", row)
		}
	}
}

// row returns the table row of a limit: Max, C, four durations, and the most units in an interval
// of length Per. Starting from a level of 0, a burst takes Max units. The durations are the wait
// until one more unit is allowed, the time between units of a steady flow, the wait until Max units
// are allowed again, and the time until the level is 0.
func row(t *testing.T, text string) string {
	t.Helper()
	l := limits(text)
	b := inMemory(t, ar1.Config{Limits: l})
	burst := b.allow("e", l[0].Max)
	next := b.peek("e", 1)
	again := b.peek("e", l[0].Max)
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }
	return fmt.Sprintf("| %d | %.4f | %s | %s | %s | %s | %d |", l[0].Max, peakOf(l[0]), seconds(next.RetryAfter),
		seconds(l[0].Per/time.Duration(l[0].Max)), seconds(again.RetryAfter), seconds(burst.Usage[0].ResetAfter), 2*l[0].Max)
}
