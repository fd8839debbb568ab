package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/chromedp"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// screens is the directory to which TestScreens writes its pictures.
var screens = flag.String("screens", "", "a directory for pictures of the page, at 1280 and 390 pixels, light and dark")

// holds waits until a JavaScript condition is true.
func holds(condition string) chromedp.Action {
	return chromedp.Poll(condition, nil, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(time.Minute))
}

// free waits until the given number of units is free under the first limit.
func free(units int) chromedp.Action {
	return holds(fmt.Sprintf(`document.querySelector(".free").textContent.startsWith("%d free")`, units))
}

// servePage runs slidegate inspect --web with the given arguments until the test ends. It returns
// the address of the page.
func servePage(t *testing.T, args ...string) string {
	t.Helper()
	return servePageOf(t, redistest.Addr(t), args...)
}

// TestPageLive checks that a denied event is shown as such, that its bars move, and that the
// countdown ends. The next attempt is then allowed, and appears.
func TestPageLive(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	s := newService(t)
	l := s.limiter(t, "5/15s")
	do(t, ctx, visit(servePage(t, "--limit", "5/15s", s.name, "alice")), says("because", "Nothing is counted"), says("live", "live"))
	for range 5 {
		allow(t, l, "alice", true)
	}
	allow(t, l, "alice", false)
	do(t, ctx, says("answer", "Denied"), says("because", "by 5/15s"), says("where", s.name+" on "), holds(`document.querySelector(".full")`))
	const bars = `document.querySelector(".strip g[transform]")`
	position := `Number(` + bars + `.getAttribute("transform").match(/-?[0-9.]+/)[0])`
	var before float64
	do(t, ctx, holds(bars), chromedp.Evaluate(position, &before), holds(fmt.Sprintf("%s < %f - 20", position, before)))
	do(t, ctx, holds(`/^([0-2][.][0-9] s|now)$/.test(document.getElementById("countdown").textContent)`), says("answer", "Allowed"), free(5))
	allow(t, l, "alice", true)
	do(t, ctx, free(4))
	var resets bool
	do(t, ctx, chromedp.Evaluate(`document.querySelector("#reset, #confirm") !== null`, &resets))
	if resets {
		t.Error("there is a Reset that nobody allowed")
	}
}

// TestPageOfOtherLimits checks that the page warns of limits that are stored but not named, because
// they may deny too.
func TestPageOfOtherLimits(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	s := newService(t)
	l := s.limiter(t, "1/1h,1000000/1d")
	allow(t, l, "alice", true)
	allow(t, l, "alice", false)
	do(t, ctx, visit(servePage(t, "--limit", "1000000/1d", s.name, "alice")), says("answer", "Allowed"),
		says("because", "999,999 units at once; other limits are stored, and may deny too"))
}

// TestPagePace checks that the page shows the next and the newest turn of package pace, and a
// pause. It checks that Reset forgets them.
func TestPagePace(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	s := newService(t)
	l, err := pace.New(window.On(s.client), pace.Config{Name: s.name, Limits: parsed(t, "1/1m,100/1h"), MaxAhead: time.Hour, Timeout: time.Minute})
	for range 2 {
		if err == nil {
			_, err = l.Reserve(t.Context(), "alice")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	do(t, ctx, visit(servePage(t, "--pace", "--allow-reset", "--limit", "1/1m", s.name, "alice")), says("answer", "Waits"),
		says("because", "for the next turn; other limits are stored, and may delay it too"), says("turns", "The newest turn comes in "),
		says("until", "turn at "), says("limits", "0 free, 1 used, 1 ahead"), holds(`!document.querySelector(".strip, .denied")`))
	if err := l.Pause(t.Context(), "alice", time.Minute); err != nil {
		t.Fatal(err)
	}
	do(t, ctx, says("turns", "The pause ends in "), chromedp.Click("#reset", chromedp.ByID),
		chromedp.Click(`#confirm button[value="yes"]`, chromedp.ByQuery), says("answer", "Allowed"), says("because", "Nothing is counted"))
}

// TestPageInflight checks that the page shows the leases of package inflight, and that Reset
// forgets them.
func TestPageInflight(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	s := newService(t)
	l, err := inflight.New(window.On(s.client), inflight.Config{Name: s.name, Max: 5, TTL: time.Hour, Holder: "web-1", Timeout: time.Minute})
	if err == nil {
		_, _, err = l.TryAcquireN(t.Context(), "alice", 5)
	}
	if err != nil {
		t.Fatal(err)
	}
	do(t, ctx, visit(servePage(t, "--inflight", "--allow-reset", "--limit", "5", s.name, "alice")), says("answer", "Denied"),
		says("because", "5 of 5 units held"), says("until", ", unless renewed"), says("turns", "The last token is "),
		says("limits", "0 free, 5 held"), says("leases", "web-1"), chromedp.Click("#reset", chromedp.ByID),
		chromedp.Click(`#confirm button[value="yes"]`, chromedp.ByQuery), says("answer", "Allowed"), says("leases", "Nobody holds a unit."))
}

// TestPageOverride checks that the page shows an override and its decision, notices when it is
// ended, and shows its texts as plain text, whatever they contain.
func TestPageOverride(t *testing.T) {
	s := newService(t)
	l, err := window.New(window.On(s.client), window.Config{Name: s.name, Limits: parsed(t, "5/1h"), Timeout: time.Minute, Overrides: true})
	const markup, controls = `<img src=x onerror="window.hacked=1">`, "a\xff\u202e\x1b[2J"
	for event, o := range map[string]window.Override{
		"more": {Mode: window.OverrideLimits, Limits: parsed(t, "100/1m,7/1h"), Why: "ticket 4711", By: "ann"},
		"all":  {Mode: window.OverrideUnlimited, Why: strings.Repeat("x", 200)},
		"none": {Mode: window.OverrideBlock, Why: markup, By: controls},
	} {
		allow(t, s.limiter(t, "5/1h"), event, true)
		if err == nil {
			err = l.Override(t.Context(), event, o, time.Hour)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, of := chromium(t), func(event string) chromedp.Action { return visit(servePage(t, "--limit", "5/1h", s.name, event)) }
	do(t, ctx, of("more"), says("because", "6 units at once"), says("override", "Override: 100/1m,7/1h until "), says("override", ", by ann: ticket 4711"))
	do(t, ctx, of("all"), says("answer", "Allowed"), says("because", "without limits, by an override"), says("override", "Override: unlimited until "),
		holds(`document.documentElement.scrollWidth <= innerWidth`))
	do(t, ctx, of("none"), says("answer", "Denied"), says("because", "by an override"), says("until", "allowed at "),
		says("override", "Override: block until "), says("override", `, by "a\xff\u202e\x1b[2J": `+markup), holds(`!("hacked" in window)`))
	if _, err := l.EndOverride(t.Context(), "none"); err != nil {
		t.Fatal(err)
	}
	do(t, ctx, says("because", "4 units at once"), holds(`document.getElementById("override").hidden`))
}

// TestPageReset checks a reset by keyboard: the page asks for confirmation, Cancel keeps the event,
// and Reset forgets only this event.
func TestPageReset(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	s := newService(t)
	l := s.limiter(t, "1/1h")
	name := "a\xff<b>" // not valid UTF-8
	allow(t, l, name, true)
	allow(t, l, "other", true)
	url := servePage(t, "--allow-reset", "--limit", "1/1h", s.name, name)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.Replace(url, "/?", "/reset?", 1), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", "https://evil.example")
	if got := statusOf(t, r); got != http.StatusForbidden {
		t.Fatalf("another site: status %d", got)
	}
	opened := holds(`document.getElementById("confirm").open`)
	do(t, ctx, visit(url), says("answer", "Denied"), chromedp.Focus("#reset", chromedp.ByID), chromedp.KeyEvent("\r"), opened, says("forgotten", `"a\xff<b>"`))
	do(t, ctx, chromedp.KeyEvent("\r"), holds(`!document.getElementById("confirm").open`)) // Cancel has the focus
	allow(t, l, name, false)
	do(t, ctx, chromedp.KeyEvent("\r"), opened, chromedp.Click(`#confirm button[value="yes"]`, chromedp.ByQuery), says("answer", "Allowed"), says("because", "Nothing is counted"))
	allow(t, l, name, true)
	allow(t, l, "other", false)
}

// TestPageResetUncertain checks that if Redis hangs during a reset, the page says that the event
// may still be forgotten later.
func TestPageResetUncertain(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	server := redistest.Start(t)
	s := &service{name: "login", client: server.NewClient(t, nil)}
	allow(t, s.limiter(t, "1/1h"), "alice", true)
	// The browser logs the status of the response as an error, although the page handles it.
	do(t, ctx, log.Disable(), visit(servePageOf(t, server.Addr(), "--allow-reset", "--limit", "1/1h", s.name, "alice")), says("answer", "Denied"))
	server.Pause(t)
	defer server.Resume(t)
	do(t, ctx, chromedp.Click("#reset", chromedp.ByID), chromedp.Click(`#confirm button[value="yes"]`, chromedp.ByQuery),
		says("failed", "Some counts may not have been reset: --redis "))
}

// TestPageHostile checks that an event that contains markup is shown as text, and that no script in
// it runs.
func TestPageHostile(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	s := newService(t)
	l := s.limiter(t, "1/1h")
	for name, shown := range map[string]string{
		`<script>window.hacked=1</script>`:        `<script>window.hacked=1</script>`,
		`"><img src=x onerror="window.hacked=1">`: `"><img src=x onerror="window.hacked=1">`,
		"\xff\u202e": `"\xff\u202e"`,
		strings.Repeat("<b onclick=hacked=1>x", 488): strings.Repeat("<b onclick=hacked=1>x", 488), // 10 KB
	} {
		allow(t, l, name, true)
		var got string
		var hacked, wider bool
		do(t, ctx, visit(servePage(t, "--limit", "1/1h", s.name, name)), says("answer", "Denied"),
			chromedp.Evaluate(`document.getElementById("shown").textContent`, &got), chromedp.Evaluate(`"hacked" in window`, &hacked),
			chromedp.Evaluate(`document.documentElement.scrollWidth > innerWidth`, &wider))
		if got != shown || hacked || wider {
			t.Errorf("%.40q: shown as %.40q, ran: %t, wider than the window: %t", name, got, hacked, wider)
		}
	}
}

// TestPageAccount checks that the page shows all budgets of an account and why it is denied, and
// that each budget links to its event.
func TestPageAccount(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	g := newGuardedService(t)
	url := servePage(t, "--login", "--secret-file", g.file, g.name, "alice", "192.0.2.31")
	g.failNow(t, "alice", "192.0.2.31", 5)
	do(t, ctx, visit(url), says("answer", "Denied"), says("because", "by pair"),
		says("why", "pair: 5 failures within 1m, from this address on this account. 5/1m allows the next at "),
		says("state", "A known device is denied only by total"), holds(`document.querySelectorAll(".limit").length === 13`))
	follow(t, ctx, `//h2/a[text()="pair"]`)
	do(t, ctx, says("shown", "192.0.2.31 alice"), says("answer", "Denied"), says("because", "by 5/1m"))
}

// TestPageChallenged checks that the page shows the budgets of challenged attempts, and whether a
// challenge would help. The verdict concerns attempts without a challenge.
func TestPageChallenged(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	g := newGuardedService(t)
	url := servePage(t, "--login", "--challenged", "--secret-file", g.file, g.name, "alice", "192.0.2.31")
	do(t, ctx, visit(url), says("challenge", "A challenge would let the user in now."), holds(`document.querySelectorAll(".limit").length === 22`))
	c := g.challenged(t, -time.Since(afternoon))
	for range 5 {
		if _, err := c.BeginChallenged(t.Context(), "alice", netip.MustParseAddr("192.0.2.31")); err != nil {
			t.Fatal(err)
		}
	}
	do(t, ctx, says("challenge", "A challenge would not let the user in: denied by challenged-pair and challenged-account for "),
		says("answer", "Allowed"), says("because", "denied after 5 more failures"))
}

// TestPageHostileAccount checks that an account that is not valid UTF-8, or that reverses the
// direction of text, is shown as plain text. Its budgets must link to its events.
func TestPageHostileAccount(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	g := newGuardedService(t)
	account := "a\xff\u202e<b>"
	url := servePage(t, "--login", "--secret-file", g.file, g.name, account, "192.0.2.31")
	g.failNow(t, account, "192.0.2.31", 5)
	do(t, ctx, visit(url), says("answer", "Denied"), holds(`document.querySelectorAll("h2 small")[1].textContent === '"192.0.2.31 a\\xff\\u202e<b>"'`))
	follow(t, ctx, `//h2/a[text()="pair"]`)
	do(t, ctx, says("shown", `"192.0.2.31 a\xff\u202e<b>"`), says("answer", "Denied"), says("because", "by 5/1m"))
}

// TestPageWithoutRedis checks that the page reports when Redis hangs or is down, and that it
// recovers on its own.
func TestPageWithoutRedis(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	server := redistest.Start(t)
	do(t, ctx, visit(servePageOf(t, server.Addr(), "login", "alice")), says("because", "Nothing is counted"))
	server.Pause(t)
	faded := holds(`getComputedStyle(document.getElementById("state")).opacity < 1`)
	do(t, ctx, says("trouble", "failed (it did not answer in time); try again"), says("live", "retrying"), faded)
	server.Resume(t)
	do(t, ctx, says("live", "live"), holds(`getComputedStyle(document.getElementById("state")).opacity === "1"`))
	server.Kill(t)
	do(t, ctx, says("trouble", "failed ("), says("live", "retrying"))
	server.Restart(t)
	do(t, ctx, says("live", "live"), holds(`document.getElementById("trouble").hidden`))
}

// TestPageOfProxy checks that the page shows the last hour and who is denied most, and links to the
// live page of an event.
func TestPageOfProxy(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	p := startProxy(t, os.Args[0], "--to", server.URL, "--limit", "2/1h", "--route", "/free none", "--route", "/user 1/1h by header:X-User", "--allow-reset")
	do(t, ctx, visit(p.admin), says("overview", "Nothing was denied in the last hour."), says("live", "live"))
	for _, path := range []string{"/", "/", "/", "/free"} {
		get(t, p.url+path)
	}
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/user", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-User", "\u202eecila")
		statusOf(t, r)
	}
	do(t, ctx, holds(`document.querySelector(".tile.allowed b").textContent === "4" && document.querySelector(".tile.denied b").textContent === "2"`), says("overview", "/free"),
		says("overview", `"/user header X-User \u202eecila"`))
	follow(t, ctx, `//td/a[text()="/ 127.0.0.1"]`)
	do(t, ctx, says("answer", "Denied"), says("where", "on the memory of this instance"),
		chromedp.Click("#reset", chromedp.ByID), chromedp.Click(`#confirm button[value="yes"]`, chromedp.ByQuery), says("answer", "Allowed"))
	get(t, p.url)
	do(t, ctx, free(1))
}

// TestScreens takes the pictures for the documentation: go test ./cmd/slidegate -run Screens
// -screens DIR.
func TestScreens(t *testing.T) {
	if *screens == "" {
		t.Skip("This test takes pictures for people; give it a directory by -screens.")
	}
	server := redistest.Start(t)
	s := &service{name: "login", client: server.NewClient(t, nil)}
	g := guard(t, s)
	g.pastFailures(t, time.Now())
	plain := servePageOf(t, server.Addr(), "--allow-reset", "--limit", "1/5s,5/1h,20/1d", s.name, "198.51.100.7")
	account := servePageOf(t, server.Addr(), "--allow-reset", "--login", "--secret-file", g.file, g.name, "alice", "192.0.2.31")
	start, _, _ := strings.Cut(account, "?")
	s.secret = nil
	s.past(t, "1/5s,5/1h,20/1d", "198.51.100.7", time.Now(), 21*h, 20*h, 9*h, 8*h+50*m, 8*h+40*m, 4*h, 48*m, 31*m, 30*m, 12*m, time.Second)
	list, denied := mostDenied(t)
	someDenied(t, list)
	ctx := chromium(t)
	for name, url := range map[string]string{"event": plain, "account": account, "start": start, "proxy": busyProxy(t), "denied": denied} {
		shots(t, ctx, name, url)
	}
}

// shots takes four pictures of a page.
func shots(t *testing.T, ctx context.Context, name, url string) {
	t.Helper()
	for _, width := range []int64{1280, 390} {
		for _, scheme := range []string{"light", "dark"} {
			dark := emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}})
			ready := holds(`!document.getElementById("live") || !document.querySelector("#state, #overview") || document.querySelector(".limit, table")`)
			do(t, ctx, dark, chromedp.EmulateViewport(width, 800), visit(url), ready)
			shot(t, ctx, fmt.Sprintf("%s-%d-%s", name, width, scheme))
			if name == "event" {
				do(t, ctx, chromedp.Click("#reset", chromedp.ByID))
				shot(t, ctx, fmt.Sprintf("reset-%d-%s", width, scheme))
			}
		}
	}
}

// busyProxy returns the page of a proxy with an hour of traffic.
func busyProxy(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	p := startProxy(t, os.Args[0], "--to", server.URL, "--limit", "1000/1h", "--route", "POST /login 1/5s,5/1h by header:X-User", "--route", "/reports/ 3/1h by all", "--route", "/health none")
	for i := range 400 {
		path, method := "/", http.MethodGet
		switch {
		case i%7 == 0:
			path, method = "/login", http.MethodPost
		case i%11 == 0:
			path = "/reports/weekly"
		case i%13 == 0:
			path = "/health"
		}
		r, err := http.NewRequest(method, p.url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-User", []string{"alice", "bob", "carol"}[i%5%3])
		statusOf(t, r)
	}
	return p.admin
}

// statusOf returns the status of the response to a request.
func statusOf(t *testing.T, r *http.Request) int {
	t.Helper()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}
