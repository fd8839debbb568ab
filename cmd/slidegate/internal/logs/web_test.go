package logs

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// stamped returns a web log line with an address, a time and the given rest.
func stamped(rest string) string {
	return `192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] ` + rest
}

func TestWeb(t *testing.T) {
	const (
		combined = `192.0.2.1 - alice [10/Oct/2000:13:55:36 -0700] "GET /login?x=1 HTTP/1.1" 200 2326 "http://ref.example/" "Mozilla/5.0 (X11; Linux x86_64)"`
		common   = `198.51.100.7 - - [10/Oct/2000:13:55:36 -0700] "POST /xmlrpc.php HTTP/1.0" 403 -`
		old      = `in24.inetnebr.example - - [01/Aug/1995:00:00:01 -0400] "GET /shuttle/missions/sts-68/news/sts-68-mcc-05.txt HTTP/1.0" 200 1839`
	)
	for _, tt := range []struct{ line, field, want string }{
		{combined, "address", "192.0.2.1"},
		{combined, "user", "alice"},
		{combined, "path", "/login"},
		{combined, "agent", "Mozilla/5.0 (X11; Linux x86_64)"},
		{combined, anyField, ""},
		{common, "address", "198.51.100.7"},
		{common, "user", ""},
		{common, "path", "/xmlrpc.php"},
		{common, "agent", ""},
		{old, "address", "in24.inetnebr.example"},
		{old, "path", "/shuttle/missions/sts-68/news/sts-68-mcc-05.txt"},

		// Different spellings of an address are one event.
		{`::ffff:192.0.2.1` + combined[9:], "address", "192.0.2.1"},
		{`2001:DB8:0:0::1` + combined[9:], "address", "2001:db8::1"},
		{`2001:db8::1` + combined[9:], "address", "2001:db8::1"},
		{`fe80::1%eth0` + combined[9:], "address", "fe80::1%eth0"},
		{`localhost` + combined[9:], "address", "localhost"},
		{`-` + combined[9:], "address", ""},

		// User names.
		{`192.0.2.1 - "" [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 401 0`, "user", ""},
		{`192.0.2.1 -  [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 401 0`, "user", ""},
		{`192.0.2.1 - Alice B. Smith [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, "user", "Alice B. Smith"},
		{`192.0.2.1 - a [b] c [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, "user", "a [b] c"},
		{`192.0.2.1 - a] \"b\" [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, "user", `a] \"b\"`},
		{`192.0.2.1 unix-uid alice [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, "user", "alice"},

		// Paths.
		{stamped(`"GET / HTTP/1.1" 200 5`), "path", "/"},
		{stamped(`"GET /" 200 5`), "path", "/"},
		{stamped(`"GET /a b HTTP/1.1" 400 5`), "path", "/a b"},
		{stamped(`"GET /a HTTP/1.1 b HTTP/1.1" 400 5`), "path", "/a HTTP/1.1 b"},
		{stamped(`"GET /a?b?c HTTP/1.1" 200 5`), "path", "/a"},
		{stamped(`"GET /a#b?c HTTP/1.1" 200 5`), "path", "/a"},
		{stamped(`"GET /a?u=http://example.org/b HTTP/1.1" 200 5`), "path", "/a"},
		{stamped(`"GET //a HTTP/1.1" 200 5`), "path", "//a"},
		{stamped(`"GET /%2e%2e/a HTTP/1.1" 200 5`), "path", "/%2e%2e/a"},
		{stamped(`"GET /a\"b\\ HTTP/1.1" 200 5`), "path", `/a\"b\\`},
		{stamped(`"GET /a\x22b HTTP/1.1" 200 5`), "path", `/a\x22b`},
		{stamped(`"GET /a[b] HTTP/1.1" 200 5`), "path", "/a[b]"},
		{stamped(`"GET http://example.org/a/b?c HTTP/1.1" 200 5`), "path", "/a/b"},
		{stamped(`"GET http://example.org HTTP/1.1" 200 5`), "path", "/"},
		{stamped(`"GET http://example.org?a/b HTTP/1.1" 200 5`), "path", "/"},
		{stamped(`"M-SEARCH /a HTTP/1.1" 200 5`), "path", "/a"},
		{stamped(`"GET /cut-o`), "path", "/cut-o"},
		{stamped(`"OPTIONS * HTTP/1.1" 200 5`), "path", ""},
		{stamped(`"CONNECT example.org:443 HTTP/1.1" 400 5`), "path", ""},
		{stamped(`"-" 408 -`), "path", ""},
		{stamped(`"" 400 0 "-" "-"`), "path", ""},
		{stamped(`"\x16\x03\x01" 400 226 "-" "-"`), "path", ""},
		{stamped(`"\x16\x03\x01 /a HTTP/1.1" 400 226 "-" "-"`), "path", ""},
		{stamped(`" /a HTTP/1.1" 400 226 "-" "-"`), "path", ""},

		// User agents.
		{stamped(`"GET / HTTP/1.1" 200 5 "-" "-"`), "agent", ""},
		{stamped(`"GET / HTTP/1.1" 200 5 "-" ""`), "agent", ""},
		{stamped(`"GET / HTTP/1.1" 200 5 "-" "curl/8.5.0" 0.004 "192.0.2.9"`), "agent", "curl/8.5.0"},
		{stamped(`"GET / HTTP/1.1" 200 - "-" "a \"b\" c"`), "agent", `a \"b\" c`},
		{stamped(`"GET / HTTP/1.1" 200 5 "a\" \"b" "c\\" 7`), "agent", `c\\`},
		{stamped(`"GET /\" 200 5 \"a\" \"b\" HTTP/1.1" 200 5 "c" "d"`), "agent", "d"},
		{stamped(`"" 400 0 "-" "d"`), "agent", "d"},
		{stamped(`"GET / HTTP/1.1" 200 5 0.004 "192.0.2.9" "a"`), "agent", ""}, // appended to the common format
		{stamped(`"GET / HTTP/1.1" 200 5 "cut-o`), "agent", ""},

		// Texts that imitate the rest of the line.
		{`192.0.2.1 - 198.51.100.4 - - [01/Jan/2001:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5 [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, "address", "192.0.2.1"},
		{`192.0.2.1 - x [01/Jan/2001:00:00:00 +0000]  [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, "address", "192.0.2.1"},
		{`192.0.2.1 - x [01/Jan/2001:00:00:00 +0000] \x22GET / [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, "address", "192.0.2.1"},
		{stamped(`"GET / [01/Jan/2001:00:00:00 +0000] \"GET / HTTP/1.1" 200 5`), "address", "192.0.2.1"},
		{stamped(`"GET /" - - [01/Jan/2001:00:00:00 +0000] "GET / HTTP/1.1" 200 5`), "address", "192.0.2.1"}, // a server that does not escape
		{stamped(`"GET / HTTP/1.1" 200 5 "198.51.100.4 - - [01/Jan/2001:00:00:00 +0000] " "] "`), "address", "192.0.2.1"},
	} {
		want := Attempt{At: time.Date(2000, 10, 10, 20, 55, 36, 0, time.UTC), Event: tt.want, Units: 1, Times: 1}
		if tt.line == old {
			want.At = time.Date(1995, 8, 1, 4, 0, 1, 0, time.UTC)
		}
		if got, err := (web{}).read(tt.line, tt.field); err != nil || got != want {
			t.Errorf("%s of %s\ngot %v, %v\nwant %v", tt.field, tt.line, got, err, want)
		}
		if asWeb(tt.line, Options{}, false) == nil {
			t.Errorf("%s\nis not recognised", tt.line)
		}
	}
}

func TestWebUnreadable(t *testing.T) {
	const form = `it does not begin like 192.0.2.1 - alice [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1"`
	for _, tt := range []struct{ line, want string }{
		{"", form},
		{" ", form},
		{"2025-03-04T05:06:07Z,192.0.2.1", form},
		{"Mar  4 05:06:07 bastion sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", form},
		{`{"time":"2025-03-04T05:06:07Z","event":"192.0.2.1"}`, form},
		{`192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] `, form},
		{`192.0.2.1 - - [10/Oct/2000 13:55:36] "GET / HTTP/1.1" 200 -`, form},
		{`192.0.2.1 - - [2000-10-10T13:55:36-07:00] "GET / HTTP/1.1" 200 5`, form},
		{`192.0.2.1 - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, form},
		{`192.0.2.1 [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, form},
		{`[10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, form},
		{`192.0.2.1 - -[10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, form},
		{`192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] GET / HTTP/1.1 200 5`, form},
		{` - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, `it begins with "", which is neither an address nor a host name`},
		{`www.example.org:80 10.0.0.1:4022 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, `it begins with "10.0.0.1:4022", which is neither an address nor a host name`},
		{`192.0.2.1, 192.0.2.2 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, `it begins with "192.0.2.1,", which is neither an address nor a host name`},
		{`web-1  | 192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, `it begins with "web-1", which is not an address, and no - follows it`},
		{`stdout F 192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, `it begins with "stdout", which is not an address, and no - follows it`},
		{`unix: - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, `it begins with "unix:", which is neither an address nor a host name`},
		{`192.0.2.1 - - [31/Feb/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, `"31/Feb/2000:13:55:36 -0700" is not a time`},
	} {
		if _, err := (web{}).read(tt.line, "address"); err == nil || err.Error() != tt.want {
			t.Errorf("%s\ngot %v\nwant %s", tt.line, err, tt.want)
		}
		if asWeb(tt.line, Options{}, false) != nil {
			t.Errorf("%s\nis recognised", tt.line)
		}
	}
}

func TestWebTime(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"10/Oct/2000:13:55:36 -0700", "2000-10-10T20:55:36Z"},
		{"10/Oct/2000:13:55:36 +0000", "2000-10-10T13:55:36Z"},
		{"10/Oct/2000:13:55:36 -0330", "2000-10-10T17:25:36Z"},
		{"10/Oct/2000:13:55:36 +0545", "2000-10-10T08:10:36Z"},
		{"31/Dec/1999:23:59:59 -0001", "2000-01-01T00:00:59Z"},
		{"29/Feb/2000:00:00:00 +0000", "2000-02-29T00:00:00Z"},
		{"01/Jan/1970:01:00:00 +0100", "1970-01-01T00:00:00Z"},

		{"01/Jan/1970:00:59:59 +0100", ""},
		{"31/Dec/9999:23:59:59 +0000", ""}, // a limiter cannot count at this time
		{"29/Feb/1900:00:00:00 +0000", ""},
		{"29/Feb/2001:00:00:00 +0000", ""},
		{"31/Apr/2001:00:00:00 +0000", ""},
		{"00/Jan/2001:00:00:00 +0000", ""},
		{"32/Jan/2001:00:00:00 +0000", ""},
		{"30/Jun/2015:23:59:60 +0000", ""}, // a leap second
		{"10/Oct/2000:24:00:00 +0000", ""},
		{"10/Oct/2000:13:60:36 +0000", ""},
		{"10/Oct/2000:13:55:36 +2400", ""},
		{"10/Oct/2000:13:55:36 +0060", ""},
		{"10/Oct/2000:13:55:36 00000", ""},
		{"10/Oct/2000:13:55:36 +0x00", ""},
		{"10/oct/2000:13:55:36 +0000", ""},
		{"10/anF/2000:13:55:36 +0000", ""},
		{"10/Okt/2000:13:55:36 +0000", ""},
		{"-1/Oct/2000:13:55:36 +0000", ""},
		{"10/Oct/-200:13:55:36 +0000", ""},
		{"10/Oct/2000 13:55:36 +0000", ""},
		{"10/Oct/2000:13:55:36+00000", ""},
		{"1/Oct/2000:13:55:36 +00000", ""},
		{"10/Oct/2000:13:55:36 +00:00", ""},
	} {
		at, ok := parseWebTime(tt.text)
		if got := at.Format(time.RFC3339); ok != (tt.want != "") || ok && (got != tt.want || at.Location() != time.UTC) {
			t.Errorf("%s: got %v, %v; want %s", tt.text, at, ok, tt.want)
		}
	}
	for month := range time.Month(12) {
		want := time.Date(2000, month+1, 1, 0, 0, 0, 0, time.UTC)
		if got, ok := parseWebTime(want.Format(webTime)); !ok || !got.Equal(want) {
			t.Errorf("got %v, %v; want %v", got, ok, want)
		}
	}
}

// apacheEscape escapes a client's text in the same way as Apache.
func apacheEscape(s string) string { return escapeBytes(s, `"\`, `\%c`, `\x%02x`) }

// nginxEscape escapes a client's text in the same way as nginx.
func nginxEscape(s string) string { return escapeBytes(s, "", "", `\x%02X`) }

func escapeBytes(s, backslashed, withBackslash, inHex string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		switch {
		case strings.IndexByte(backslashed, c) >= 0:
			fmt.Fprintf(&b, withBackslash, c)
		case c < ' ' || c > '~' || c == '"' || c == '\\':
			fmt.Fprintf(&b, inHex, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// FuzzWebClientCannotForge checks that a client cannot change the address, the time or the other
// fields that the server wrote.
func FuzzWebClientCannotForge(f *testing.F) {
	const forged = ` 198.51.100.4 - - [01/Jan/2001:00:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "-"`
	f.Add("alice", "GET /login HTTP/1.1", "http://ref.example/", "Mozilla/5.0")
	f.Add(forged, forged, forged, forged)
	f.Add(`""`, `\`, `\"`, `\\"`)
	f.Add(`a [b] "c`, `GET /[x] "y HTTP/1.1`, `] "`, `] \"`)
	at := time.Date(2000, 10, 10, 20, 55, 36, 0, time.UTC)
	f.Fuzz(func(t *testing.T, user, request, referer, agent string) {
		for _, escape := range []func(string) string{apacheEscape, nginxEscape} {
			line := fmt.Sprintf(`192.0.2.1 - %s [10/Oct/2000:13:55:36 -0700] "%s" 200 2326 "%s" "%s"`, escape(user), escape(request), escape(referer), escape(agent))
			for field, want := range map[string]string{"address": "192.0.2.1", "user": withoutDash(escape(user)), "agent": withoutDash(escape(agent))} {
				if got, err := (web{}).read(line, field); err != nil || got != (Attempt{At: at, Event: want, Units: 1, Times: 1}) {
					t.Errorf("%s of %s\ngot %v, %v\nwant %q", field, line, got, err, want)
				}
			}
		}
		// A server that escapes nothing. The user name contains no quotes.
		line := fmt.Sprintf(`192.0.2.1 - %s [10/Oct/2000:13:55:36 -0700] "%s" 200 2326 "%s" "%s"`, strings.ReplaceAll(user, `"`, ""), request, referer, agent)
		if got, err := (web{}).read(line, "address"); err != nil || got != (Attempt{At: at, Event: "192.0.2.1", Units: 1, Times: 1}) {
			t.Errorf("%s\ngot %v, %v", line, got, err)
		}
	})
}

// FuzzWebNeverPanics checks that any line gives an error or an attempt on which a limiter can
// decide.
func FuzzWebNeverPanics(f *testing.F) {
	f.Add(stamped(`"GET /a?b HTTP/1.1" 200 5 "-" "curl/8.5.0"`))
	f.Add(stamped(`"GET http://example.org HTTP/1.1`))
	f.Add(`2001:db8::1%a - \" [10/Oct/2000:13:55:36 -0700] "\`)
	f.Fuzz(func(t *testing.T, line string) {
		for _, field := range webFields {
			a, err := web{}.read(line, field)
			if err == nil && (!inRange(a.At) || a.Units != 1 || a.Times != 1 || asWeb(line, Options{}, false) == nil) {
				t.Errorf("%s of %q: %v", field, line, a)
			}
			if path := a.Event; field == "path" && path != "" && (path[0] != '/' || strings.ContainsAny(path, "?#")) {
				t.Errorf("%q has the path %q", line, path)
			}
		}
	})
}

// FuzzWebTimeAgreesWithTimeParse checks that parseWebTime reads what time.Time.Format writes, and
// that it never disagrees with time.Parse.
func FuzzWebTimeAgreesWithTimeParse(f *testing.F) {
	for _, s := range []string{"10/Oct/2000:13:55:36 -0700", "29/Feb/2000:23:59:59 +1400", "30/Jun/2015:23:59:60 +0000", "01/Jan/1970:00:00:00 -0000"} {
		f.Add(s, int64(len(s)), int16(-210))
	}
	f.Fuzz(func(t *testing.T, s string, seconds int64, minutes int16) {
		got, ok := parseWebTime(s)
		if want, err := time.Parse(webTime, s); ok && (err != nil || !got.Equal(want)) {
			t.Errorf("%q: got %v; want %v, %v", s, got, want, err)
		}
		want := time.Unix(seconds%(1<<37), 0).In(time.FixedZone("", int(minutes%(24*60))*60))
		written := want.Format(webTime)
		if got, ok := parseWebTime(written); ok != inRange(want) || ok && !got.Equal(want) {
			t.Errorf("%q: got %v, %v", written, got, ok)
		}
	})
}
