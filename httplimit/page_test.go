package httplimit_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// TestPages checks that docs/http.md and docs/outbound.md agree with real responses, the examples,
// and the log.
func TestPages(t *testing.T) {
	page := string(must(os.ReadFile("../docs/http.md"))) + string(must(os.ReadFile("../docs/outbound.md")))
	var all strings.Builder
	for _, file := range must(filepath.Glob("example_*test.go")) {
		all.Write(must(os.ReadFile(file)))
	}
	examples := all.String()
	for what, text := range rawResponses(t) {
		if !strings.Contains(page, "\n"+text+"```") {
			t.Errorf("neither page shows this (%s):\n%s", what, text)
		}
	}
	for _, begin := range []string{
		"	conn := window.Dial(", "	paid, err := free.With(", "	limit, err := httplimit.New(httplimit.Config{\n		Checks:", "	status, err := ",
		"	limit, err := httplimit.New(httplimit.Config{\n		Limiter: limiter,\n		Key:     httplimit.Header", "// newClient returns", "	limit, err := httplimit.NewInFlight(",
	} {
		_, text, found := strings.Cut(examples, begin)
		end := regexp.MustCompile(`\n(}|	handler := limit\.Wrap.*|	mux\.Handle\("GET /limits".*|	}\)\))\n\n`).FindStringIndex(text)
		if !found || end == nil || !strings.Contains(withoutTabs(page), withoutTabs(begin+text[:end[1]-1])) {
			t.Errorf("neither page shows the example from %q", begin)
		}
	}
	if status := regexp.MustCompile(`(?m)^{"quotas".*`).FindString(page); status == "" || !strings.Contains(examples, status) {
		t.Errorf("neither page shows the status of ExampleNewStatus, but %q", status)
	}
	sources := must(filepath.Glob("*_test.go"))
	for _, run := range regexp.MustCompile(`-run ('[^'$^]+'|\w+)`).FindAllStringSubmatch(page, -1) {
		for name := range strings.SplitSeq(strings.Trim(run[1], "'"), "|") {
			if !slices.ContainsFunc(sources, func(file string) bool {
				return regexp.MustCompile(`(?m)^func \w*` + name).Match(must(os.ReadFile(file)))
			}) {
				t.Errorf("a command on these pages runs no test: %s", name)
			}
		}
	}
	for _, line := range []string{lineOutage, lineDegraded, lineRecovered} {
		_, text, _ := strings.Cut(strings.TrimSuffix(line, "\"\n"), "slidegate: ")
		if !strings.Contains(page, text) {
			t.Errorf("neither page contains %q", text)
		}
	}
}

// withoutTabs removes the tabs of a string.
func withoutTabs(text string) string { return strings.ReplaceAll(text, "\t", "") }

// rawResponses returns the responses that a client receives in various cases, byte for byte except
// the date.
func rawResponses(t *testing.T) map[string]string {
	t.Helper()
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	limiter := inMemory(func() time.Time { return now }, "1/5s", "5/1h")
	m := middleware(httplimit.Config{Limiter: limiter, Key: address})
	all := map[string]string{"allowed": rawResponse(t, m)}
	now = now.Add(1500 * time.Millisecond)
	all["denied"] = rawResponse(t, m)
	_, all["no key"], _ = strings.Cut(rawResponse(t, middleware(httplimit.Config{Limiter: limiter, Key: httplimit.Header("X-Api-Key")})), "\n\n")
	_, all["too much"], _ = strings.Cut(rawResponse(t, middleware(httplimit.Config{Limiter: limiter, Cost: func(*http.Request) int64 { return 2 }})), "\n\n")
	_, all["blocked"], _ = strings.Cut(rawResponse(t, middleware(httplimit.Config{Limiter: httplimit.Blocked})), "\n\n")
	_, all["outage"], _ = strings.Cut(rawResponse(t, middleware(httplimit.Config{Limiter: fixedLimiter{err: window.ErrOutage}, Log: new(logBuffer).logger()})), "\n\n")
	full := places(1)
	_ = must(full.Acquire(t.Context(), "everybody"))
	all["no place"] = ask(inFlight(httplimit.InFlightConfig{Places: full}).Wrap(fine)).Body.String()
	return all
}

// rawResponse returns the response to a request, byte for byte.
func rawResponse(t *testing.T, m *httplimit.Middleware) string {
	t.Helper()
	s := httptest.NewServer(m.Wrap(fine))
	defer s.Close()
	conn := connect(s)
	defer conn.Close()
	_ = must(io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
	text := strings.ReplaceAll(string(must(io.ReadAll(bufio.NewReader(conn)))), "\r\n", "\n")
	text = regexp.MustCompile(`(?m)^(Date|Connection): .*\n`).ReplaceAllString(text, "")
	return strings.TrimSuffix(text, "\n") + "\n"
}
