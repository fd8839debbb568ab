package proxy

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestHour checks that a request is counted in its minute for an hour, and no longer.
func TestHour(t *testing.T) {
	var h hourlyTally
	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	h.add("/", allowed, noon)
	h.add("/", denied, noon.Add(59*time.Second))
	h.add("/login", gone, noon.Add(time.Minute))
	for after, want := range map[time.Duration]map[string]tally{
		time.Minute:                       {"/": {1, 1, 0}, "/login": {0, 0, 1}},
		time.Hour - time.Second:           {"/": {1, 1, 0}, "/login": {0, 0, 1}},
		time.Hour:                         {"/login": {0, 0, 1}},
		time.Hour + time.Minute:           {},
		20*365*24*time.Hour + time.Second: {},
	} {
		minutes, routes := h.sums(noon.Add(after))
		if diff := cmp.Diff(want, routes); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", after, diff)
		}
		var sum, sumOfRoutes tally
		for _, m := range minutes {
			sum = sum.plus(m)
		}
		for _, r := range routes {
			sumOfRoutes = sumOfRoutes.plus(r)
		}
		if sum != sumOfRoutes {
			t.Errorf("after %v: minutes %v, routes %v", after, sum, sumOfRoutes)
		}
	}
	h.add("/", refused, noon.Add(time.Hour)) // replaces noon
	if minutes, _ := h.sums(noon.Add(time.Hour)); minutes[59] != (tally{0, 0, 1}) || minutes[0] != (tally{0, 0, 1}) {
		t.Errorf("%v", minutes)
	}
}

// TestOverview checks that the overview contains each route, each request and each denied event.
// The event must have a link, unless it is hidden.
func TestOverview(t *testing.T) {
	for name, secret := range map[string][]byte{"clear": nil, "hidden": []byte("sixteen bytes, or more")} {
		t.Run(name, func(t *testing.T) {
			to, _ := startOrigin(t)
			i := startInstance(t, Config{To: to, Secret: secret, Routes: []Route{limitedRoute("/a/", "2/1h", "100/1d"), limitedRoute("/a/b", "1/1h"), {Pattern: "/quiet"}}})
			for _, path := range []string{"/a/x", "/a/x", "/a/x", "/a/b", "/a/b", "/free", "/a/%2e%2e/free"} {
				status(t, i.url+path)
			}
			o, ok := i.Overview().(overview)
			if !ok {
				t.Fatalf("%T", i.Overview())
			}
			want := []traffic{
				{"/a/", "2/1h, 100/1d@24m", tally{2, 1, 0}},
				{"/a/b", "1/1h", tally{1, 1, 0}},
				{"/quiet", "", tally{}},
				{"/", "", tally{1, 0, 0}},
				{"", "", tally{0, 0, 1}},
			}
			if diff := cmp.Diff(want, o.Routes, cmp.AllowUnexported(traffic{})); diff != "" || o.Redis != "none" || len(o.Outages) != 0 {
				t.Errorf("%s, %v (-want +got):\n%s", o.Redis, o.Outages, diff)
			}
			if first := slices.IndexFunc(o.Minutes[:], func(m tally) bool { return m.Allowed > 0 }); first < 58 {
				t.Errorf("minute %d has requests: %v", first, o.Minutes)
			}
			for _, m := range o.Most {
				want := ""
				if secret == nil {
					want = url.Values{"event": {m.Event}}.Encode()
				}
				if m.Link != want {
					t.Errorf("%+v, not %q", m, want)
				}
			}
			if len(o.Most) != 2 {
				t.Errorf("%+v", o.Most)
			}
		})
	}
}

// TestLimiterOfEvent checks that Limiter finds the route of an event by its pattern.
func TestLimiterOfEvent(t *testing.T) {
	to, _ := startOrigin(t)
	i := startInstance(t, Config{To: to, Routes: []Route{limitedRoute("/", "2/1h"), limitedRoute("POST /login", "1/1h")}})
	for event, want := range map[string]int64{"/ 192.0.2.1": 2, "POST /login 192.0.2.1": 1, "POST /logi": 0, "192.0.2.1": 0, "": 0} {
		l := i.Limiter(event)
		if (l != nil) != (want > 0) {
			t.Errorf("%q: %v", event, l)
		} else if l != nil {
			if s, err := l.Inspect(t.Context(), event); err != nil || s.Limits[0].Limit.Max != want {
				t.Errorf("%q: %+v, %v", event, s, err)
			}
		}
	}
}

// TestPageBesideAdmin checks that the page serves the paths that Admin does not, and that clients
// cannot reach it.
func TestPageBesideAdmin(t *testing.T) {
	to, _ := startOrigin(t)
	p := must(New(Config{Name: "proxy", To: to, Routes: []Route{limitedRoute("/", "2/1h")}, Log: slog.New(slog.DiscardHandler)}))
	p.Page = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("the page")) })
	for path, want := range map[string]string{"/": "the page", "/page.js": "the page", "/healthz": "{", "/over": "{"} {
		if got := bodyOf(p.Admin(), path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", path, got)
		}
	}
	if got := bodyOf(p, "/"); got != "fine" {
		t.Errorf("clients get %q", got)
	}
}

// TestOverForNoOtherSite checks that a site whose name resolves to this machine cannot find out who
// is limited.
func TestOverForNoOtherSite(t *testing.T) {
	to, _ := startOrigin(t)
	i := startInstance(t, Config{To: to, Routes: []Route{limitedRoute("/", "2/1h")}})
	for host, want := range map[string]int{"evil.example:8001": http.StatusForbidden, "localhost:8001": http.StatusOK} {
		r := must(http.NewRequestWithContext(t.Context(), http.MethodGet, i.admin+"/over", http.NoBody))
		r.Host = host
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: status %d, not %d", host, res.StatusCode, want)
		}
	}
}

// bodyOf returns the body of a handler's response.
func bodyOf(h http.Handler, path string) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w.Body.String()
}
