package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/webaudit"
)

// TestAudit audits a service without a limit, and checks each form of the report.
func TestAudit(t *testing.T) {
	var served atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		if r.Method != http.MethodPost || r.Header.Get("X-Name") != "a: b" {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer s.Close()
	svg := filepath.Join(t.TempDir(), "audit.svg")
	for _, form := range [][]string{{}, {"--markdown"}, {"--json"}, {"--picture", svg}} {
		served.Store(0)
		args := append([]string{"audit", s.URL + "/login", "--claims", "5/20ms", "--method", "POST", "--header", "X-Name: a: b"}, form...)
		stdout, stderr, status := command(t.Context(), args...)
		if status != 3 || !strings.Contains(stdout, "excess") && !strings.Contains(stdout, "It allows more than 5/20ms") {
			t.Errorf("%v: status %d, %s%s", form, status, stdout, stderr)
		}
		var announced, seconds int
		if n, err := fmt.Sscanf(stderr, "At most %d requests POST "+s.URL+"/login\nto "+s.Listener.Addr().String()+", in at most %ds", &announced, &seconds); n < 2 || served.Load() > int64(announced) {
			t.Errorf("%v: %d came, and %q announced %d: %v", form, served.Load(), stderr, announced, err)
		}
		checkForm(t, form, stdout, served.Load())
	}
	if drawn, err := os.ReadFile(svg); err != nil || !strings.Contains(string(drawn), "5/20ms") {
		t.Errorf("no picture: %v", err)
	}
}

// checkForm checks that a report can be parsed or, if it is text, fits a terminal.
func checkForm(t *testing.T, form []string, report string, served int64) {
	t.Helper()
	if len(form) == 0 {
		for line := range strings.Lines(report) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		return
	}
	var r webaudit.Report
	if form[0] == "--json" {
		if err := json.Unmarshal([]byte(report), &r); err != nil || r.Requests != served || len(r.Findings) == 0 || len(r.Attempts) == 0 {
			t.Errorf("%v: %d requests came, %d are reported", err, served, r.Requests)
		}
	}
}

// TestAuditErrors checks that each error says what to do instead.
func TestAuditErrors(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--claims 5/1s", "the URL is missing; write the one of the service, as in slidegate audit http://127.0.0.1:8080/login --claims 20/10s"},
		{"http://127.0.0.1:1", "--claims is missing; write the limits that the service claims to keep, as in --claims 20/10s"},
		{"127.0.0.1:1 --claims 5/1s", `"127.0.0.1:1" is not the URL of a service; write it with its scheme, as in http://127.0.0.1:8080/login`},
		{"http://name:p/secret@h --claims 5/1s", `"h" is not the URL of a service; write it with its scheme, as in http://127.0.0.1:8080/login`},
		{"http://198.51.100.7 --claims 5/1s", "198.51.100.7 is at 198.51.100.7, which is neither this machine nor a private network; audit only your own services, and add --own"},
		{"http://127.0.0.1:1 --claims 5/1s --header x", `--header "x" has no colon; write it as in 'Authorization: Bearer x'`},
		{"http://127.0.0.1:1 --claims 5/1s --header Host:a\nX:b", `--header "Host:a\nX:b" is not a header field: its name has an invalid character, or its value has a control character`},
		{"http://127.0.0.1:1 --claims 5/1s --header :b", `--header ":b" is not a header field: its name has an invalid character, or its value has a control character`},
		{"http://127.0.0.1:1 --claims 5/1s --method GET:", `"GET:" is not a method; write one such as GET or POST`},
		{"http://127.0.0.1:1 --claims 5/1s --denied 0", "--denied 0 is not an HTTP status; write it as in --denied 429,503"},
		{"http://127.0.0.1:1 --claims 5/1s --max-requests 0", "--max-requests 0 and --max-time 5m0s have to be more than 0"},
		{"http://127.0.0.1:1 --claims 5/1s --max-time 0", "--max-requests 5000 and --max-time 0s have to be more than 0"},
		{"http://127.0.0.1:1 --claims 5/1s --max-requests 9", "no attack fits; allow more: of the 5m0s and 9 requests, the ways around the limit take 22s and 299"},
		{"http://127.0.0.1:1 --claims 5/1h --picture -", "--picture: the standard output is for the report; name a file"},
	} {
		stdout, stderr, status := command(t.Context(), append([]string{"audit"}, strings.Split(tt.args, " ")...)...)
		if want := "slidegate: " + tt.want + "\n"; status != 1 || stdout != "" || stderr != want {
			t.Errorf("%s: status %d, %s%s", tt.args, status, stdout, stderr)
		}
	}
}
