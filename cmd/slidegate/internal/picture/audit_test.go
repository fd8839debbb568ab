package picture

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
)

// TestTrail checks the number of requests in the window before, and that the picture is always the
// same.
func TestTrail(t *testing.T) {
	second := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	trail := Trail{Claim: "2/1s", Max: 2, Per: time.Second, Admitted: []Span{{second(0.5), second(1.5)}, {0, second(1)}, {second(1), second(2)}, {second(2), second(1)}}}
	outline, most := trail.steps()
	if most != 2 || outline[len(outline)-1].X != 2 || outline[len(outline)-1].Y > 0 {
		t.Errorf("at most %d; %v", most, outline)
	}
	var one, two bytes.Buffer
	for _, b := range []*bytes.Buffer{&one, &two} {
		if err := DrawTrails(b, sheet.SVG, "Audit", 2*time.Second, []Trail{trail, {Claim: "9/1m", Max: 9, Per: time.Minute}}); err != nil {
			t.Fatal(err)
		}
	}
	if one.String() != two.String() || !strings.Contains(one.String(), "2/1s") || !strings.Contains(one.String(), "9/1m") {
		t.Error("the picture lacks a limit, or differs each time")
	}
}

// TestSeconds checks that an axis has neither too few nor too many ticks.
func TestSeconds(t *testing.T) {
	for _, end := range []float64{0.001, 0.35, 1, 7, 23.4, 99, 100, 86400} {
		if n := len(seconds(end)); n < 5 || n > 12 {
			t.Errorf("%d ticks up to %v", n, end)
		}
	}
}
