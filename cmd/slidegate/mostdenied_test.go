package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/chromedp"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/mostdenied"
	"github.com/slidegate/slidegate/window"
)

// mostDenied serves the page of package mostdenied in the same way as a service would.
func mostDenied(t *testing.T) (list *mostdenied.List, url string) {
	t.Helper()
	list = mostdenied.New()
	operators := http.NewServeMux()
	operators.Handle("GET /denied", list)
	server := httptest.NewServer(operators)
	t.Cleanup(server.Close)
	return list, server.URL + "/denied"
}

// TestMostDenied checks the page of package mostdenied: it shows new denials on its own, runs no
// script that an event contains, and fits into a wide and a narrow window.
func TestMostDenied(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	for _, width := range []int64{1280, 390} {
		list, url := mostDenied(t)
		do(t, ctx, chromedp.EmulateViewport(width, 800), visit(url), says("live", "live"), shows("Nothing was denied in the last hour."))
		someDenied(t, list)
		do(t, ctx, shows("198.51.100.7"), shows("login.account, limit 10/10m"), shows(`"right\u202eto left"`), shows("1 at once"))
		var hacked, wider bool
		do(t, ctx, chromedp.Evaluate(`"hacked" in window || document.querySelector("img") !== null`, &hacked),
			chromedp.Evaluate(`document.documentElement.scrollWidth > innerWidth`, &wider))
		if hacked || wider {
			t.Errorf("%d pixels: ran: %t, wider than the window: %t", width, hacked, wider)
		}
	}
}

// TestMostDeniedWithoutServer checks that the page reports when its server is down.
func TestMostDeniedWithoutServer(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	server := httptest.NewServer(mostdenied.New())
	do(t, ctx, visit(server.URL), says("live", "live"), log.Disable()) // the browser logs each failure
	server.Close()
	do(t, ctx, says("live", "no connection; trying again"), holds(`getComputedStyle(document.querySelector("main")).opacity < 1`))
}

// shows waits until the page contains the given text.
func shows(text string) chromedp.Action {
	return holds(fmt.Sprintf("document.querySelector('main').innerText.includes(%q)", text))
}

// someDenied makes limiters deny clients, some of which have hostile names.
func someDenied(t *testing.T, list *mostdenied.List) {
	t.Helper()
	ctx := t.Context()
	api, err := window.NewLocal(window.Config{Name: "api", Limits: parsed(t, "5/1h"), OnDenied: list.Count})
	if err != nil {
		t.Fatal(err)
	}
	for i, event := range []string{
		"198.51.100.7", "2001:db8:1:2::/64", "right\u202eto left", `<script>window.hacked=1</script>`, `"><img src=x onerror="window.hacked=1">`,
		strings.Repeat("<b>", 3414), strings.Repeat("W", 128), "\x00\x1b[31m\xff",
	} {
		for range 3605>>(2*i) + 6 {
			_, _ = api.Allow(ctx, event)
		}
	}
	guard, err := login.NewLocal(login.Config{Name: "login", OnDenied: list.Count})
	if err != nil {
		t.Fatal(err)
	}
	for i := range byte(40) {
		_, _ = guard.Begin(ctx, "alice", netip.AddrFrom4([4]byte{203, 0, 113, i}))
		_, _ = guard.Begin(ctx, "bob", netip.MustParseAddr("192.0.2.31"))
	}
	jobs, err := inflight.NewLocal(inflight.Config{Name: "exports", Max: 1, Secret: []byte("0123456789abcdef"), OnDenied: list.Count})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = jobs.Close(context.Background()) })
	for range 10 {
		_, _, _ = jobs.TryAcquire(ctx, "customer 17")
	}
}
