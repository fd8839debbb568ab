package main

import (
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestPicturesInBrowser checks that a browser draws the charts in docs in light or dark mode, as
// its user prefers, and that all text fits, whatever fonts are installed.
func TestPicturesInBrowser(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	pictures, _ := filepath.Glob("../../docs/*.svg")
	if len(pictures) < 8 {
		t.Fatalf("%d pictures", len(pictures))
	}
	for _, file := range pictures {
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		for scheme, ground := range map[string]string{"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"} {
			var drawn string
			var beyond []string
			do(
				t, ctx,
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
				visit("file://"+path),
				chromedp.Evaluate(`getComputedStyle(document.querySelector("path,rect")).fill`, &drawn),
				chromedp.Evaluate(`[...document.querySelectorAll("text")].filter(text => {
					const page = document.documentElement.getBoundingClientRect(), t = text.getBoundingClientRect()
					return t.left < page.left || t.right > page.right || t.top < page.top || t.bottom > page.bottom
				}).map(text => text.textContent)`, &beyond),
			)
			if drawn != ground || len(beyond) > 0 {
				t.Errorf("%s, %s: the ground is %s, not %s; beyond the edge: %q", file, scheme, drawn, ground, beyond)
			}
		}
	}
}
