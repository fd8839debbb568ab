package mostdenied_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/mostdenied"
	"github.com/slidegate/slidegate/window"
)

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// get returns the response of the list to a client that accepts the given types.
func get(t *testing.T, list *mostdenied.List, accept string) *httptest.ResponseRecorder {
	t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/denied", http.NoBody)
	r.Header.Set("Accept", accept)
	list.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("status %d", w.Code)
	}
	return w
}

// deny makes a limiter of one attempt an hour deny each event once.
func deny(t *testing.T, list *mostdenied.List, secret []byte, events ...string) {
	t.Helper()
	l := must(window.NewLocal(window.Config{Name: "api", Limits: []window.Limit{window.PerHour(1)}, Secret: secret, OnDenied: list.Count}))
	for _, event := range events {
		for range 2 {
			must(l.Allow(t.Context(), event))
		}
	}
}

// TestJSON checks that clients that are not browsers get the Report as JSON.
func TestJSON(t *testing.T) {
	list := mostdenied.New()
	for _, want := range []string{`{"denied":0,"events":0,"most":[]}`, ""} {
		w := get(t, list, "*/*")
		if got := strings.Join(strings.Fields(w.Body.String()), ""); w.Header().Get("Content-Type") != "application/json" || want != "" && got != want {
			t.Errorf("%v %s, not %s", w.Header(), got, want)
		}
		var got mostdenied.Report
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(list.Report(), got); diff != "" {
			t.Errorf("(-Report +JSON):\n%s", diff)
		}
		deny(t, list, nil, "198.51.100.7")
	}
}

// hostile maps events that clients could choose to how the page shows them.
var hostile = map[string]string{
	`<script>window.hacked=1</script>`:  `&lt;script&gt;window.hacked=1&lt;/script&gt;`,
	`"><img src=x onerror=hacked=1>`:    `&#34;&gt;&lt;img src=x onerror=hacked=1&gt;`,
	"right\u202eto left":                `&#34;right\u202eto left&#34;`,
	"\x00\x1b[31m\r\nSet-Cookie: a\xff": `&#34;\x00\x1b[31m\r\nSet-Cookie: a\xff&#34;`,
	"\u3164":                            `&#34;\u3164&#34;`,
	"m\u00fcller\u2800":                 `&#34;m\u00fcller\u2800&#34;`,
	"m\u00fcller  ":                     "m\u00fcller  ",
	strings.Repeat("<b>", 3414):         keys.Tag(nil, strings.Repeat("<b>", 3414)), // 10 kB
	strings.Repeat("x", 128):            strings.Repeat("x", 128),
}

// TestHostile checks that the page shows events as plain text, short and in one writing direction.
func TestHostile(t *testing.T) {
	list := mostdenied.New()
	for event := range hostile {
		deny(t, list, nil, event)
	}
	w := get(t, list, browser)
	body := w.Body.String()
	for event, want := range hostile {
		if !strings.Contains(body, `<span class="event">`+want+`</span>`) {
			t.Errorf("%.40q is not shown as %.80q", event, want)
		}
	}
	if _, table, _ := strings.Cut(body, "<tbody>"); strings.Contains(table, "<img") || strings.Contains(table, "<b>") || len(body) > 12_000 {
		t.Errorf("%d bytes: %s", len(body), table)
	}
	for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'"} {
		if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") {
			t.Errorf("policy %s", policy)
		}
	}
}

// TestReasons checks that the page and the JSON say what denied an event.
func TestReasons(t *testing.T) {
	five := window.PerHour(5)
	for want, d := range map[string]window.Denial{
		"api, limit 5/1h":                {Limit: five},
		"api, limit 5/1h of an override": {Limit: five, Decision: window.Decision{Override: window.OverrideLimits}},
		"api, blocked by an override":    {Decision: window.Decision{Override: window.OverrideBlock}},
		"api, no room in memory":         {},
	} {
		list := mostdenied.New()
		d.Limiter = "api"
		list.Count(t.Context(), d)
		if body := get(t, list, browser).Body.String(); !strings.Contains(body, "<small>"+want+"</small>") {
			t.Errorf("the page does not say %q: %s", want, body)
		}
		if e := list.Report().Most[0]; e.Override != d.Override {
			t.Errorf("%s: override %q", want, e.Override)
		}
	}
}

// TestSecret checks that neither the page nor the JSON contains the Secret or an event that it
// hides.
func TestSecret(t *testing.T) {
	list, secret := mostdenied.New(), []byte("hush-hush-hush-hush")
	deny(t, list, secret, "alice@example.com")
	for _, accept := range []string{browser, "application/json"} {
		body := get(t, list, accept).Body.String()
		if strings.Contains(body, "alice") || strings.Contains(body, "hush") || !strings.Contains(body, keys.Tag(secret, "alice@example.com")) {
			t.Error(body)
		}
	}
}
