package look

import (
	"math"
	"strings"
	"testing"
)

// luminance returns the relative luminance of WCAG 2.
func luminance(rgb uint32) float64 {
	linear := func(part uint32) float64 {
		v := float64(part&0xff) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(rgb>>16) + 0.7152*linear(rgb>>8) + 0.0722*linear(rgb)
}

func contrast(a, b uint32) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// TestContrast checks that text and curves stand out in both modes, as WCAG 2 requires at level AA.
func TestContrast(t *testing.T) {
	for _, c := range All() {
		least := 3.0
		switch c {
		case Ink, Faint:
			least = 4.5
		case Paper, Rule, Shade:
			continue
		}
		if light, dark := contrast(c.light, Paper.light), contrast(c.dark, Paper.dark); light < least || dark < least {
			t.Errorf("%s has a contrast of %.1f in light mode and of %.1f in dark mode, not %.1f", c, light, dark, least)
		}
	}
}

func TestFinish(t *testing.T) {
	const drawn = `<?xml version="1.0"?>
<svg width="750pt" height="90pt" viewBox="0 0 750 90">
<g transform="scale(1, -1) translate(0, -90)">
<text x="15" y="-63" transform="scale(1, -1)"
	style="font-family:Liberation Sans;font-variant:normal;font-weight:bold;font-style:normal;font-size:15px;fill:#222222">a &lt; b</text>
</g>
</svg>
`
	got := string(Finish([]byte(drawn), func(text string, size float64, bold bool) float64 {
		if text != "a < b" || size != 15 || !bold {
			t.Errorf("%q, %v, %v", text, size, bold)
		}
		return 31.25
	}))
	for _, want := range []string{
		"viewBox=\"0 0 750 90\">\n<style>@media (prefers-color-scheme:dark){",
		`[style*="fill:#222222"]{fill:#E6EDF3!important}`, `[style*="stroke:#222222"]{stroke:#E6EDF3!important}`,
		`textLength="31.25" lengthAdjust="spacingAndGlyphs" style="font:bold 15px 'Liberation Sans',Arial,Helvetica,sans-serif;fill:#222222">a &lt; b</text>`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
}
