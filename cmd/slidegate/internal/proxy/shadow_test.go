package proxy

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// TestShadow checks that every request reaches the server, that clients do not notice the limits,
// and that operators see the outcomes without shadow mode.
func TestShadow(t *testing.T) {
	to, reached := startOrigin(t)
	keyed := Route{Pattern: "/keyed", Limits: []window.Limit{window.PerHour(2)}, Key: httplimit.Header("X-Key")}
	i := startInstance(t, Config{To: to, Routes: []Route{limitedRoute("/", "2/1h"), keyed}, Shadow: true})
	for _, path := range []string{"/", "/", "/", "/", "/", "/keyed", "//keyed"} {
		res, err := http.Get(i.url + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if h := res.Header; res.StatusCode != http.StatusOK || h.Get("RateLimit") != "" || h.Get("RateLimit-Policy") != "" || h.Get("Retry-After") != "" {
			t.Errorf("%s: %d, %v", path, res.StatusCode, h)
		}
	}
	if n := reached.Load(); n != 7 {
		t.Errorf("%d of 7 reached the server", n)
	}
	got := []int{i.counted("/", allowed, byMemory), i.counted("/", denied, byMemory), i.counted("/keyed", noKey, byNobody), i.counted("", ambiguous, byNobody)}
	if want := []int{2, 3, 1, 1}; [4]int(got) != [4]int(want) {
		t.Errorf("/metrics count %v, not %v", got, want)
	}
	var d denials
	if err := json.Unmarshal([]byte(read(t, i.admin+"/over")), &d); err != nil || !d.Shadow || d.Denied != 3 || len(d.Most) != 1 {
		t.Errorf("/over: %+v, %v", d, err)
	}
	if i.logDenials(0); i.log.count(`msg="requests would have been denied" denied=3`) != 1 || strings.Contains(i.log.String(), "were denied") {
		t.Errorf("the log: %s", i.log)
	}
	if !strings.Contains(read(t, i.admin+"/metrics"), "\nslidegate_shadow 1\n") {
		t.Error("/metrics does not show the shadow mode")
	}
}

// TestShadowInAnOutage checks that requests pass even though Outage is FailClosed, and that they
// are counted as refused.
func TestShadowInAnOutage(t *testing.T) {
	to, _ := startOrigin(t)
	nobody := window.Dial("redis://127.0.0.1:1")
	t.Cleanup(nobody.Close)
	i := startInstance(t, Config{To: to, Routes: []Route{limitedRoute("/", "2/1h")}, Redis: nobody, Outage: httplimit.FailClosed, Timeout: testTimeout, Shadow: true})
	if got, counted := status(t, i.url), i.counted("/", refused, byNobody); got != http.StatusOK || counted != 1 {
		t.Errorf("%d, counted %d times", got, counted)
	}
}

// TestShadowStaysInThePath checks that shadow mode still refuses a request that would leave the
// path of --to, because this does not concern limits.
func TestShadowStaysInThePath(t *testing.T) {
	p := newProxy("http://127.0.0.1:1/base", Config{Routes: []Route{limitedRoute("/", "2/1h")}, Shadow: true})
	for _, path := range []string{"/../admin", "/x/%2e%2e/%2e%2e/admin", "/..%2Fadmin", "/..;/admin", "a:http://x/"} {
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, must(parseRequest("GET "+path, "Host: a"))); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}
