package logs

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"
)

func TestParseBy(t *testing.T) {
	for _, tt := range []struct {
		text string
		want By
	}{
		{"user", By{Field: "user"}},
		{"address", By{Field: "address"}},
		{"address/64", By{Field: "address", Bits: 64}},
		{"ip/1", By{Field: "ip", Bits: 1}},
		{"ip/128", By{Field: "ip", Bits: 128}},
		{"request.remote_ip/56", By{Field: "request.remote_ip", Bits: 56}},
		{"@timestamp", By{Field: "@timestamp"}},
		{"user name", By{Field: "user name"}},
		{"a/b/64", By{Field: "a/b", Bits: 64}},
		{"a)", By{Field: "a)"}},
	} {
		if got, err := ParseBy(tt.text); err != nil || got != tt.want {
			t.Errorf("%s: got %v, %v; want %v", tt.text, got, err, tt.want)
		}
	}
	for _, text := range []string{`rip=([0-9a-f.:]+)`, `(.*)`, `^(?:a|b) (\S+)`, `\((\w+)\)`, `a/(\d+)/64`, "\t(x)"} {
		if got, err := ParseBy(text); err != nil || got.Pattern == nil || got.Pattern.String() != text || got.Field != "" || got.Bits != 0 {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
}

func TestParseByRefuses(t *testing.T) {
	const (
		noField = ` is not a field; write one, as in user, or address/64, or a regular expression with a group around the event, as in rip=([0-9a-f.:]+)`
		group   = `write one group around the event, as in rip=([0-9a-f.:]+)`
	)
	for _, tt := range []struct{ text, want string }{
		{``, `"" is not a field; write one, as in user, or address/64`},
		{`/64`, `"/64" is not a field; write one, as in user, or address/64`},
		{`/`, `"/" is not a field; write one, as in user, or address/64`},
		{`ip/`, `"ip/" has no number from 1 to 128 after the slash; write ip/64`},
		{`ip/0`, `"ip/0" has no number from 1 to 128 after the slash; write ip/64`},
		{`ip/129`, `"ip/129" has no number from 1 to 128 after the slash; write ip/64`},
		{`ip/999999`, `"ip/999999" has no number from 1 to 128 after the slash; write ip/64`},
		{`ip/-1`, `"ip/-1"` + noField},
		{`ip/+64`, `"ip/+64"` + noField},
		{`ip/b`, `"ip/b"` + noField},
		{"us\x07er", `"us\aer" holds a control character, which no field has; leave it out`},
		{"ip\n/64", `"ip\n/64" holds a control character, which no field has; leave it out`},
		{`(`, `'(' is not a regular expression: missing closing ): ` + "`(`; " + group},
		{`rip=([`, `'rip=([' is not a regular expression: missing closing ]: ` + "`[`; " + group},
		{`(a{2000})`, `'(a{2000})' is not a regular expression: invalid repeat count: ` + "`{2000}`; " + group},
		{`(?=a)(b)`, `'(?=a)(b)' is not a regular expression: invalid or unsupported Perl syntax: ` + "`(?=`; " + group},
		{`(?:x)`, `'(?:x)' has 0 capturing groups; ` + group + `, and others as (?:a|b)`},
		{`\(x`, `'\(x' has 0 capturing groups; ` + group + `, and others as (?:a|b)`},
		{`(a)|(b)`, `'(a)|(b)' has 2 capturing groups; ` + group + `, and others as (?:a|b)`},
	} {
		if got, err := ParseBy(tt.text); err == nil || err.Error() != tt.want || got != (By{}) {
			t.Errorf("%s: got %v, %v\nwant %s", tt.text, got, err, tt.want)
		}
	}
}

// webFrom returns a web log line for a request from the given address.
func webFrom(address string) string {
	return address + ` - - [10/Oct/2000:13:55:36 +0000] "GET /a HTTP/1.1" 200 5`
}

// jsonFrom returns a JSON line whose field ip is the given address.
func jsonFrom(address string) string {
	return `{"time":"2000-10-10T13:55:36Z","ip":"` + address + `","event":"the default","address":"198.51.100.9","units":2}`
}

func TestByEvent(t *testing.T) {
	for _, tt := range []struct {
		by   string // empty means the zero By
		f    format
		line string
		want string
	}{
		{"", web{}, webFrom("192.0.2.1"), "192.0.2.1"},
		{"", jsonBy("time"), jsonFrom("192.0.2.1"), "the default"},
		{"path", web{}, webFrom("192.0.2.1"), "/a"},
		{"ip", web{}, webFrom("192.0.2.1"), "192.0.2.1"},
		{"ip", jsonBy("time"), jsonFrom("192.0.2.1"), "192.0.2.1"},
		{"address", jsonBy("time"), jsonFrom("192.0.2.1"), "198.51.100.9"},

		// Networks.
		{"ip/64", web{}, webFrom("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64"},
		{"address/64", web{}, webFrom("2001:db8:1:2::"), "2001:db8:1:2::/64"},
		{"ip/48", web{}, webFrom("2001:db8:1:2:3:4:5:6"), "2001:db8:1::/48"},
		{"ip/56", web{}, webFrom("2001:db8:1:2ff::1"), "2001:db8:1:200::/56"},
		{"ip/1", web{}, webFrom("2001:db8::1"), "::/1"},
		{"ip/128", web{}, webFrom("2001:db8::1"), "2001:db8::1/128"},
		{"ip/64", web{}, webFrom("fe80::1%eth0"), "fe80::/64"},
		{"ip/64", web{}, webFrom("192.0.2.1"), "192.0.2.1"},
		{"ip/1", web{}, webFrom("::ffff:192.0.2.1"), "192.0.2.1"},
		{"ip/64", jsonBy("time"), jsonFrom("192.0.2.1:443"), "192.0.2.1"},
		{"ip/64", jsonBy("time"), jsonFrom("[2001:db8:1:2::a]:443"), "2001:db8:1:2::/64"},
		{"ip", jsonBy("time"), jsonFrom("192.0.2.1:443"), "192.0.2.1"}, // each connection has a different port
		{"ip", jsonBy("time"), jsonFrom("alice:443"), "alice:443"},
		{"ip/64", jsonBy("time"), jsonFrom("2001:DB8:1:2::A"), "2001:db8:1:2::/64"},
		{"ip/64", jsonBy("time"), jsonFrom("::ffff:192.0.2.1"), "192.0.2.1"},
		{"ip", jsonBy("time"), jsonFrom("::ffff:192.0.2.1"), "::ffff:192.0.2.1"}, // unchanged
		{"request.remote_ip/64", jsonBy("ts"), strings.Replace(caddyLine, "1741064767.089", "971186136", 1), "2001:db8:1:2::/64"},

		// Patterns.
		{`^(\S+) `, web{}, webFrom("192.0.2.1"), "192.0.2.1"},
		{`"GET /(\w*)`, web{}, webFrom("192.0.2.1"), "a"},
		{`"ip":"([^"]*)"`, jsonBy("time"), jsonFrom("192.0.2.1"), "192.0.2.1"},
	} {
		var by By
		var err error
		if tt.by != "" {
			by, err = ParseBy(tt.by)
		}
		if err != nil {
			t.Fatal(err)
		}
		want := Attempt{At: time.Date(2000, 10, 10, 13, 55, 36, 0, time.UTC), Event: tt.want, Units: 1, Times: 1}
		if strings.Contains(tt.line, `"units":2`) {
			want.Units = 2
		}
		if got, err := by.event(tt.f, tt.line); err != nil || got != want {
			t.Errorf("by %q of %s\ngot %v, %v\nwant %v", tt.by, tt.line, got, err, want)
		}
	}
}

func TestByNoEvent(t *testing.T) {
	for _, tt := range []struct {
		by        string
		f         format
		line      string
		want      string
		isAttempt bool
	}{
		{"user", web{}, webFrom("192.0.2.1"), "no attempt: its user is empty", false},
		{"ip", web{}, webFrom("-"), "no attempt: its address is empty", false},
		{"ip/64", web{}, webFrom("-"), "no attempt: its address is empty", false},
		{"ip", jsonBy("time"), jsonFrom(""), "no attempt: its ip is empty", false},
		{"user.name", jsonBy("time"), jsonFrom(""), `no attempt: it has no field "user.name"; choose one with --by: time, ip, event, address, units`, false},
		{`none=(\w+)`, web{}, webFrom("192.0.2.1"), "no attempt", false},
		{`GET /a(\w*)`, web{}, webFrom("192.0.2.1"), "no attempt", false},
		{`a=(\w+)|b`, web{}, webFrom("b"), "no attempt", false},
		{`none=(\w+)`, web{}, "b", "no attempt", false},

		{"address/64", web{}, webFrom("example.org"), `"example.org" is not an address, so it has no /64`, true},
		{"path/64", web{}, webFrom("192.0.2.1"), `"/a" is not an address, so it has no /64`, true},
		{"ip/64", jsonBy("time"), jsonFrom("[2001:db8::1]"), `"[2001:db8::1]" is not an address, so it has no /64`, true},
		{`(b)`, jsonBy("time"), "b", "it is not a JSON object", true},
		{"ip", jsonBy("time"), "b", "it is not a JSON object", true},
	} {
		by, err := ParseBy(tt.by)
		if err != nil {
			t.Fatal(err)
		}
		got, err := by.event(tt.f, tt.line)
		if err == nil || err.Error() != tt.want || errors.Is(err, errNoAttempt) == tt.isAttempt {
			t.Errorf("by %q of %s\ngot %v, %v\nwant %s", tt.by, tt.line, got, err, tt.want)
		}
	}
}

// TestEventIsACopy checks that an event does not keep the line in memory.
func TestEventIsACopy(t *testing.T) {
	line := webFrom("192.0.2.1")
	first := uintptr(unsafe.Pointer(unsafe.StringData(line)))
	for _, s := range []string{"ip", "path", "ip/64", `GET (/\w)`} {
		by, err := ParseBy(s)
		if err != nil {
			t.Fatal(err)
		}
		a, err := by.event(web{}, line)
		if at := uintptr(unsafe.Pointer(unsafe.StringData(a.Event))); err != nil || at >= first && at < first+uintptr(len(line)) {
			t.Errorf("by %s: %q is part of the line; %v", s, a.Event, err)
		}
	}
}

// FuzzByNeverPanics checks that any By, applied to any line, returns an error or an attempt on
// which a limiter can decide.
func FuzzByNeverPanics(f *testing.F) {
	for _, by := range []string{"", "ip/64", "user", "path", "request.remote_ip/56", `"GET (\S+)`, `(?:a|(b))`, "a.b/1"} {
		f.Add(by, webFrom("2001:db8::1%1"))
		f.Add(by, caddyLine)
		f.Add(by, jsonFrom("::ffff:192.0.2.1"))
	}
	f.Fuzz(func(t *testing.T, text, line string) {
		by, err := ParseBy(text)
		if err != nil {
			return
		}
		for _, format := range []format{web{}, jsonBy("time"), jsonBy("ts")} {
			a, err := by.event(format, line)
			if err == nil && (a.Event == "" || a.Units < 1 || a.Times != 1 || !inRange(a.At)) {
				t.Errorf("by %q of %q: %v", text, line, a)
			}
		}
	})
}
