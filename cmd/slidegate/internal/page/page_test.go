package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// browser represents an open page. It stores the last update, and counts all updates.
type browser struct {
	*httptest.ResponseRecorder
	updates int
	last    update
}

// Write records an update.
func (b *browser) Write(text []byte) (int, error) {
	b.updates++
	b.last = update{}
	data := strings.TrimSpace(strings.TrimPrefix(string(text), "data: "))
	if err := json.Unmarshal([]byte(data), &b.last); err != nil {
		b.last.Error = err.Error()
	}
	return len(text), nil
}

// open opens a page in a goroutine. The page stays open until ctx is done.
func open(ctx context.Context, h http.Handler, q Query) *browser {
	b := &browser{ResponseRecorder: httptest.NewRecorder()}
	go h.ServeHTTP(b, httptest.NewRequestWithContext(ctx, http.MethodGet, "/watch?"+q.Encode(), http.NoBody))
	return b
}

// opened returns a context for pages, and a function that closes them and waits for their pollers.
func opened(t *testing.T) (ctx context.Context, leave func()) {
	ctx, cancel := context.WithCancel(t.Context())
	return ctx, func() {
		cancel()
		<-time.After(pollInterval)
		synctest.Wait()
	}
}

// counting returns a configuration that counts polls. The state that a poll returns is its number.
func counting() (cfg Config, polls *atomic.Int64) {
	polls = new(atomic.Int64)
	cfg.Named = true
	cfg.Open = func(q Query) (Poll, error) {
		if q.Name == "" {
			return nil, errors.New("slidegate: the name is missing")
		}
		return func(context.Context) (any, error) { return polls.Add(1), nil }, nil
	}
	return cfg, polls
}

// TestPagesSharePolls checks that 200 pages for one event together cause two polls a second, that
// all of them receive the last state, and that nothing keeps running after they are closed.
func TestPagesSharePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, polls := counting()
		p := &page{Config: cfg}
		ctx, leave := opened(t)
		var browsers []*browser
		for range 200 {
			browsers = append(browsers, open(ctx, http.HandlerFunc(p.watch), Query{Name: "login", Event: "alice"}))
		}
		<-time.After(time.Minute - time.Millisecond)
		synctest.Wait()
		if n := polls.Load(); n != 120 {
			t.Errorf("%d polls in a minute, not 120", n)
		}
		for i, b := range browsers {
			if b.updates < 119 || b.last.State != 120.0 || b.last.Shown != "alice" {
				t.Errorf("page %d got %d updates, and last %+v", i, b.updates, b.last)
			}
		}
		leave() // synctest fails if a goroutine is still running
		if len(p.hub.pollers) != 0 || polls.Load() > 121 {
			t.Errorf("%d pollers are left, and polled %d times", len(p.hub.pollers), polls.Load())
		}
	})
}

// TestPagesThatComeAndGo checks that pages that are opened and closed cause no more polls than a
// single page that stays open.
func TestPagesThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, polls := counting()
		p := &page{Config: cfg}
		for range 600 {
			ctx, leave := context.WithCancel(t.Context())
			open(ctx, http.HandlerFunc(p.watch), Query{Name: "login", Event: "alice"})
			<-time.After(50 * time.Millisecond)
			leave()
			<-time.After(50 * time.Millisecond)
		}
		<-time.After(pollInterval)
		if n := polls.Load(); n > 121 {
			t.Errorf("%d polls in a minute", n)
		}
	})
}

// TestSlowPolls checks that a slow poll ends after pollTimeout, and that the next poll does not
// start earlier than it would after a fast one.
func TestSlowPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began []time.Duration
		start := time.Now()
		cfg := Config{Open: func(Query) (Poll, error) {
			return func(ctx context.Context) (any, error) {
				began = append(began, time.Since(start))
				if len(began) == 2 {
					<-ctx.Done()
				}
				return nil, ctx.Err()
			}, nil
		}}
		ctx, leave := opened(t)
		open(ctx, New(cfg), Query{Event: "alice"})
		<-time.After(4*time.Second - time.Millisecond)
		leave()
		want := []time.Duration{0, pollInterval, pollInterval + pollTimeout, pollInterval + pollTimeout + pollInterval, pollInterval + pollTimeout + 2*pollInterval}
		if got := began[:min(len(began), len(want))]; !slices.Equal(got, want) {
			t.Errorf("polls began at %v, not %v", got, want)
		}
	})
}

// TestMaxWatched checks that a page that would watch one event too many gets an error, and that the
// other pages continue.
func TestMaxWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, _ := counting()
		p := &page{Config: cfg}
		ctx, leave := opened(t)
		defer leave()
		var first *browser
		for i := range maxWatched {
			first = open(ctx, http.HandlerFunc(p.watch), Query{Name: "login", Event: fmt.Sprint(i)})
		}
		synctest.Wait()
		more := open(ctx, http.HandlerFunc(p.watch), Query{Name: "login", Event: "more"})
		same := open(ctx, http.HandlerFunc(p.watch), Query{Name: "login", Event: fmt.Sprint(maxWatched - 1)})
		synctest.Wait()
		if !strings.HasPrefix(more.last.Error, "100 events are already being watched") || first.updates != 1 || same.updates != 1 {
			t.Errorf("%+v; %d and %d updates", more.last, first.updates, same.updates)
		}
	})
}

// TestOneLimiter checks that a page for a single limiter takes only the event from its URL.
func TestOneLimiter(t *testing.T) {
	var asked Query
	h := New(Config{Forget: func(_ context.Context, q Query) error { asked = q; return nil }})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/reset?event=e&name=n&limit=1/1h&ar1=1&pace=1&inflight=1&login=1&ip=192.0.2.1", http.NoBody)
	h.ServeHTTP(httptest.NewRecorder(), r)
	if want := (Query{Event: "e"}); asked != want {
		t.Errorf("%+v", asked)
	}
	if html := get(t, h, "/?event=e&login=1").Body.String(); strings.Contains(html, "failures on this account") {
		t.Error("it asks whether to forget an account")
	}
}

// TestPollError checks that a page gets an error message in place of a state.
func TestPollError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, _ := counting()
		ctx, leave := opened(t)
		defer leave()
		b := open(ctx, New(cfg), Query{Event: "alice"})
		synctest.Wait()
		if b.last.Error != "the name is missing" || b.last.State != nil {
			t.Errorf("%+v", b.last)
		}
	})
}

// hostile lists events that try to inject code or hide their text.
var hostile = []string{
	`<script>document.title="hacked"</script>`, `"><img src=x onerror=alert(1)>`, `{{.Page}}`, "a\xff\xfeb", "\u202egnp.exe", "a\nb\x00c", strings.Repeat("x<b>", 2560),
}

// TestHostileNames checks that the bytes of any event reach Open unchanged, and that the page
// contains the event as plain text.
func TestHostileNames(t *testing.T) {
	for _, name := range hostile {
		synctest.Test(t, func(t *testing.T) {
			var asked Query
			cfg := Config{Named: true, Open: func(q Query) (Poll, error) {
				asked = q
				return func(context.Context) (any, error) { return 1, nil }, nil
			}}
			ctx, leave := opened(t)
			defer leave()
			want := Query{Name: name, Event: name, Limits: name, Address: name}
			b := open(ctx, New(cfg), want)
			synctest.Wait()
			if asked != want || b.last.State != 1.0 {
				t.Errorf("%.40q: asked for %+v, got %+v", name, asked, b.last)
			}
			html := get(t, New(cfg), "/?"+want.Encode()).Body.String()
			if strings.Contains(html, name) && strings.ContainsAny(name, "<>\"\x00") || strings.Count(html, "<script") != 1 || strings.Contains(html, "<img src=x") {
				t.Errorf("%.40q stands in the page", name)
			}
		})
	}
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w
}

// TestContentSecurityPolicy checks that the page loads nothing from elsewhere and contains no
// inline scripts or styles, and that its policy forbids both.
func TestContentSecurityPolicy(t *testing.T) {
	cfg, _ := counting()
	cfg.Overview, cfg.Forget = func() any { return 1 }, func(context.Context, Query) error { return nil }
	h := New(cfg)
	for _, path := range []string{"/", "/?event=e&login=1", "/page.css", "/page.js", "/draw.js", "/icon.svg"} {
		w := get(t, h, path)
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != http.StatusOK || !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
			t.Errorf("%s: status %d, %s", path, w.Code, policy)
		}
		text := strings.ReplaceAll(w.Body.String(), "http://www.w3.org/2000/svg", "")
		if found := regexp.MustCompile(`(https?:)?//[a-z0-9]+\.|<script>|<style|\sstyle=|\son[a-z]+=|url\(|@import`).FindString(text); found != "" {
			t.Errorf("%s has %q", path, found)
		}
	}
	if w := get(t, h, "/files/index.html"); w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
}

// TestReset checks that a reset works only if the operator has allowed it, only by POST, and not
// from other sites.
func TestReset(t *testing.T) {
	var forgotten []Query
	with, without := Config{}, Config{}
	with.Forget = func(_ context.Context, q Query) error {
		forgotten = append(forgotten, q)
		if q.Event == "bad" {
			return errors.New("slidegate: no Redis")
		}
		return nil
	}
	for _, tt := range []struct {
		cfg                         Config
		method, event, header, site string
		want                        int
	}{
		{with, "POST", "e\xff", "Sec-Fetch-Site", "same-origin", 204},
		{with, "POST", "e", "", "", 204}, // not a browser
		{with, "POST", "bad", "", "", 502},
		{with, "POST", "e", "Sec-Fetch-Site", "cross-site", 403},
		{with, "POST", "e", "Sec-Fetch-Site", "same-site", 403},
		{with, "POST", "e", "Origin", "https://evil.example", 403},
		{with, "POST", "e", "Origin", "null", 403},
		{with, "GET", "e", "", "", 405},
		{without, "POST", "e", "Sec-Fetch-Site", "same-origin", 404},
	} {
		forgotten = nil
		r := httptest.NewRequestWithContext(t.Context(), tt.method, "/reset?event="+url.QueryEscape(tt.event), http.NoBody)
		r.Header.Set(tt.header, tt.site)
		w := httptest.NewRecorder()
		New(tt.cfg).ServeHTTP(w, r)
		if reached := tt.want == 204 || tt.want == 502; w.Code != tt.want || reached != (len(forgotten) == 1 && forgotten[0].Event == tt.event) {
			t.Errorf("%s of %q with %s %s: status %d, not %d; forgotten: %+v", tt.method, tt.event, tt.header, tt.site, w.Code, tt.want, forgotten)
		}
		if tt.want == 502 && w.Body.String() != "no Redis\n" {
			t.Errorf("%q", w.Body)
		}
	}
	for cfg, want := range map[*Config]bool{&with: true, &without: false} {
		if html := get(t, New(*cfg), "/?event=e").Body.String(); strings.Contains(html, "Reset") != want {
			t.Errorf("Reset is there: %t", !want)
		}
	}
}

// TestOtherSites checks that other sites can link to the page but cannot load anything from it.
func TestOtherSites(t *testing.T) {
	for _, tt := range []struct {
		site, dest string
		want       int
	}{
		{"cross-site", "document", 200},
		{"cross-site", "iframe", 403},
		{"cross-site", "image", 403},
		{"same-site", "empty", 403},
		{"same-origin", "empty", 200},
		{"none", "document", 200},
		{"", "", 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/page.js", http.NoBody)
		r.Header.Set("Sec-Fetch-Site", tt.site)
		r.Header.Set("Sec-Fetch-Dest", tt.dest)
		w := httptest.NewRecorder()
		New(Config{}).ServeHTTP(w, r)
		if w.Code != tt.want || w.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("%s, %s: status %d, not %d", tt.site, tt.dest, w.Code, tt.want)
		}
	}
}

// TestRebinding checks that a site whose name resolves to this machine cannot read anything. If the
// server listens on other addresses, it accepts any host name.
func TestRebinding(t *testing.T) {
	for _, tt := range []struct {
		local, host string
		want        int
	}{
		{"127.0.0.1", "127.0.0.1:8002", 200},
		{"127.0.0.1", "localhost:8002", 200},
		{"::1", "[::1]:8002", 200},
		{"127.0.0.1", "evil.example:8002", 403},
		{"127.0.0.1", "localhost.evil.example", 403},
		{"127.0.0.1", "", 403},
		{"192.0.2.1", "admin.example:8001", 200},
	} {
		ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(tt.local), Port: 8002})
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
		r.Host = tt.host
		w := httptest.NewRecorder()
		New(Config{}).ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s at %s: status %d, not %d", tt.host, tt.local, w.Code, tt.want)
		}
	}
}
