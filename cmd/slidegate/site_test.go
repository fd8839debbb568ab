package main

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/slidegate/slidegate/internal/redistest"
)

// TestSite builds the site, checks its links, and reads every page in Chromium: wide and narrow,
// with nothing from elsewhere. It searches, and it opens the list of pages on a narrow screen.
func TestSite(t *testing.T) {
	ctx, site := chromium(t), buildSite(t)
	server := httptest.NewServer(http.FileServer(http.Dir(site)))
	t.Cleanup(server.Close)
	onlyFrom(t, ctx, server.URL)
	for _, page := range htmlFiles(t, site) {
		for _, width := range []int64{1280, 390} {
			var wide int64
			do(t, ctx, chromedp.EmulateViewport(width, 800), visit(server.URL+"/"+page),
				chromedp.Evaluate(`document.documentElement.scrollWidth`, &wide))
			if wide > width {
				t.Errorf("%s is %d pixels wide on a screen of %d", page, wide, width)
			}
			siteShots(t, ctx, page, width)
		}
	}
	var first string
	do(t, ctx,
		visit(server.URL+"/docs/login.html"),
		chromedp.Click("#site-menu", chromedp.ByID), chromedp.WaitVisible("#site-pages a[aria-current]"),
		chromedp.SendKeys("#site-search", "acl user", chromedp.ByID), chromedp.WaitVisible("#site-results mark"),
		chromedp.Evaluate(`document.querySelector("#site-results a").href`, &first),
		chromedp.SendKeys("#site-search", " nosuchword", chromedp.ByID), says("site-results", "Nothing has all these words"),
	)
	if want := server.URL + "/docs/keys.html#the-acl-user"; first != want {
		t.Errorf("the search finds %s first, not %s", first, want)
	}
}

// buildSite builds the site in a directory of its own, and checks it.
func buildSite(t *testing.T) string {
	t.Helper()
	hugo, site := redistest.Program(t, "hugo", "hugo"), t.TempDir()
	for _, command := range [][]string{
		{hugo, "--quiet", "--panicOnWarning", "--source", root + "/site", "--destination", site, "--cacheDir", t.TempDir()},
		{"go", "run", root + "/site/check", site, root},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
		}
	}
	return site
}

// onlyFrom fails the test if a browser asks for anything from elsewhere.
func onlyFrom(t *testing.T, ctx context.Context, server string) {
	t.Helper()
	chromedp.ListenTarget(ctx, func(event any) {
		if e, ok := event.(*network.EventRequestWillBeSent); ok && !strings.HasPrefix(e.Request.URL, server) && !strings.HasPrefix(e.Request.URL, "data:") {
			t.Errorf("the page loads %s", e.Request.URL)
		}
	})
}

// htmlFiles returns the paths of the pages of a site.
func htmlFiles(t *testing.T, site string) (pages []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(site), ".", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".html" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	return pages
}

// siteShots takes a light and a dark picture of a page, for people who ask by -screens.
func siteShots(t *testing.T, ctx context.Context, page string, width int64) {
	t.Helper()
	if *screens == "" {
		return
	}
	for _, scheme := range []string{"light", "dark"} {
		do(t, ctx, emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
		shot(t, ctx, fmt.Sprintf("site-%s-%d-%s", strings.ReplaceAll(strings.TrimSuffix(page, ".html"), "/", "-"), width, scheme))
	}
}
