package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

// TestInBrowser uses the website in Chromium, over plain HTTP on localhost. A user forgets the
// password, waits, solves a puzzle, is attacked, and uses the site while Redis stops and comes
// back.
func TestInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("A browser takes a long time to start; run this test without -short.")
	}
	redis := redistest.Start(t)
	guard, url := serve(t, redis)
	laptop, phone := browsers(t, url)
	t.Run("five wrong passwords", func(t *testing.T) {
		for left := 4; left > 0; left-- {
			laptop.logIn(t, "wrong", http.StatusForbidden, "Account or password is wrong.", fmt.Sprintf("wait: %d", left))
		}
		laptop.logIn(t, "wrong", http.StatusForbidden, "Account or password is wrong. Try again in 1 hour")
	})
	t.Run("the right password is refused, and the page says how long", func(t *testing.T) {
		laptop.logIn(t, "correct horse", http.StatusTooManyRequests, "Too many attempts. Try again in 1 hour", "uzzle")
	})
	t.Run("a solved puzzle lets the user in", func(t *testing.T) {
		laptop.do(t, holds(`document.getElementById("puzzle").textContent.includes("solved")`))
		laptop.logIn(t, "correct horse", http.StatusOK, "Hello, alice")
		laptop.logOut(t)
	})
	t.Run("a known device logs in during an attack", func(t *testing.T) {
		attack(t, guard)
		phone.logIn(t, "correct horse", http.StatusTooManyRequests, "Too many attempts.")
		laptop.logIn(t, "correct horse", http.StatusOK, "Hello, alice")
		laptop.logOut(t)
	})
	t.Run("Redis stops and returns", func(t *testing.T) {
		redis.Kill(t)
		phone.logIn(t, "correct horse", http.StatusServiceUnavailable, "Nobody can log in at the moment.")
		laptop.logIn(t, "correct horse", http.StatusServiceUnavailable, "Nobody can log in at the moment.")
		redis.Restart(t)
		await(t, guard)
		laptop.logIn(t, "correct horse", http.StatusOK, "Hello, alice")
		phone.logIn(t, "correct horse", http.StatusOK, "Hello, alice")
	})
}

// serve runs the website on localhost. Its limits are per hour, because browsers on a busy machine
// take minutes.
func serve(t *testing.T, redis *redistest.Server) (guard *login.Guard, url string) {
	t.Helper()
	conn := window.On(redis.NewClient(t, nil))
	secret := []byte("0123456789abcdef")
	guard, err := login.New(conn, login.Config{
		Name: "login", Secret: secret, Timeout: time.Minute, Challenged: &login.Challenged{},
		Pair: []window.Limit{window.PerHour(5)}, Account: []window.Limit{window.PerHour(20)},
	})
	if err != nil {
		t.Fatal(err)
	}
	once, err := window.New(conn, window.Config{Name: "puzzle", Secret: secret, Limits: []window.Limit{{Max: 1, Per: validity}}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	site, err := newSite(guard, once, secret)
	if err != nil {
		t.Fatal(err)
	}
	await(t, guard)
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	return guard, strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
}

// attack makes failed attempts on alice's account until the guard denies unknown devices.
func attack(t *testing.T, guard *login.Guard) {
	t.Helper()
	for i := range 100 {
		a, err := guard.Begin(t.Context(), "alice", netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}))
		if err != nil {
			t.Fatal(err)
		}
		if a.DeniedBy == login.BudgetAccount {
			return
		}
	}
	t.Fatal("the account is not used up")
}

// await returns once the guard can decide. It fails the test after a minute.
func await(t *testing.T, guard *login.Guard) {
	t.Helper()
	redistest.Eventually(t, "the guard can decide", func() bool {
		_, err := guard.Begin(t.Context(), "somebody else", netip.MustParseAddr("192.0.2.1"))
		return err == nil
	})
}

// browser has its own cookies, and shows a page of the website.
type browser struct {
	tab context.Context
	url string
}

// browsers starts two browsers.
func browsers(t *testing.T, url string) (a, b browser) {
	t.Helper()
	path := redistest.Program(t, "chromium", "chromium", "chromium-browser", "google-chrome")
	dir := profile(t) // also used for the temporary files that a killed browser leaves behind
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.UserDataDir(dir), chromedp.Env("TMPDIR="+dir), chromedp.WSURLReadTimeout(time.Minute))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	quiet := func(string, ...any) {} // some versions of Chromium send events that chromedp does not know
	first, cancel := chromedp.NewContext(ctx, chromedp.WithErrorf(quiet), chromedp.WithLogf(quiet))
	t.Cleanup(cancel)
	a = browser{first, url}
	a.start(t, cancel)
	second, cancel := chromedp.NewContext(first, chromedp.WithTargetID(incognito(t, first)))
	t.Cleanup(cancel)
	b = browser{second, url}
	b.start(t, cancel)
	return a, b
}

// incognito opens a window that does not share cookies with others.
func incognito(t *testing.T, tab context.Context) (window target.ID) {
	t.Helper()
	tab, cancel := context.WithTimeout(tab, time.Minute)
	defer cancel()
	err := chromedp.Run(tab, chromedp.ActionFunc(func(ctx context.Context) error {
		ctx = cdp.WithExecutor(ctx, chromedp.FromContext(ctx).Browser)
		cookies, err := target.CreateBrowserContext().Do(ctx)
		if err == nil {
			window, err = target.CreateTarget("about:blank").WithBrowserContextID(cookies).WithNewWindow(true).Do(ctx)
		}
		return err
	}))
	if err != nil {
		t.Fatal(err)
	}
	return window
}

// start opens the page. A script error on it fails the test. If the browser does not start within a
// minute, cancel ends it. A browser also ends with the context in which it was started.
func (b browser) start(t *testing.T, cancel context.CancelFunc) {
	t.Helper()
	late := time.AfterFunc(time.Minute, cancel)
	defer late.Stop()
	chromedp.ListenTarget(b.tab, func(event any) {
		if e, ok := event.(*runtime.EventExceptionThrown); ok {
			t.Errorf("the page: %v", e.ExceptionDetails)
		}
	})
	if err := chromedp.Run(b.tab, chromedp.ActionFunc(b.visit)); err != nil {
		t.Fatal(err)
	}
}

// visit opens the page with the form. If the machine's network has changed, which happens whenever
// a container starts, it tries again, because Chromium then drops its connections.
func (b browser) visit(ctx context.Context) error {
	for {
		err := chromedp.Navigate(b.url + "/login").Do(ctx)
		if !strings.Contains(fmt.Sprint(err), "net::ERR_NETWORK_CHANGED") {
			return err
		}
	}
}

// profile returns a profile directory for a browser. It is removed after the test. t.TempDir would
// fail the test if a killed browser still writes to the directory.
func profile(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "chromium") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(20 * time.Second); os.RemoveAll(dir) != nil && time.Now().Before(deadline); {
			<-time.After(20 * time.Millisecond)
		}
	})
	return dir
}

// do runs actions in the browser for at most a minute.
func (b browser) do(t *testing.T, actions ...chromedp.Action) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.tab, time.Minute)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// holds waits until a JavaScript condition is true.
func holds(condition string) chromedp.Action {
	return chromedp.Poll(condition, nil, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(time.Minute))
}

// logIn submits the form as alice, and checks the page that comes back.
func (b browser) logIn(t *testing.T, password string, status int64, says ...string) {
	t.Helper()
	b.do(t, chromedp.SetValue(`[name="account"]`, "alice", chromedp.ByQuery), chromedp.SetValue(`[name="password"]`, password, chromedp.ByQuery))
	response := b.click(t, `//button[text()="Log in"]`)
	var text string
	b.do(t, chromedp.Text("body", &text, chromedp.ByQuery))
	for _, want := range says {
		if response.Status != status || !strings.Contains(text, want) {
			t.Fatalf("status %d: %s\nwant %d: %s", response.Status, text, status, want)
		}
	}
}

// logOut clicks the button that ends the session.
func (b browser) logOut(t *testing.T) {
	t.Helper()
	b.click(t, `//button[text()="Log out"]`)
}

// click clicks a button, and returns the response that it leads to. It waits for at most a minute.
func (b browser) click(t *testing.T, button string) *network.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.tab, time.Minute)
	defer cancel()
	response, err := chromedp.RunResponse(ctx, chromedp.Click(button))
	if err != nil {
		t.Fatal(err)
	}
	return response
}
