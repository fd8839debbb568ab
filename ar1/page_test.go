package ar1_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/ar1"
)

// TestPage holds the tables of docs/algorithm.md to what a limiter does.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../docs/algorithm.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"1/10s", "2/10s", "5/10s", "100/10s", "1000/10s"} {
		if row := row(t, text); !strings.Contains(string(page), row) {
			t.Errorf("docs/algorithm.md lacks %s", row)
		}
	}
}

// row says of a limit: C; from rest, how long until one more than a burst of Max, until all of Max again, and until rest; and
// the most that an interval of Per holds.
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
