package logs

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

func TestJSON(t *testing.T) {
	const at = `"time":"2025-03-04T05:06:07.089Z"`
	for _, tt := range []struct{ timeField, line, field, want string }{
		{"time", `{` + at + `,"event":"192.0.2.1"}`, "event", "192.0.2.1"},
		{"time", ` { ` + at + ` , "event" : "192.0.2.1" } `, "event", "192.0.2.1"},
		{"time", `{` + at + `,"event":"192.0.2.1"}`, anyField, ""},
		{"time", `{` + at + `,"event":"a\"b\\\u00e9\ud83d\ude00\n"}`, "event", "a\"b\\é😀\n"},
		{"time", `{` + at + `,"ev\u0065nt":"a"}`, "event", "a"},
		{"time", `{` + at + `,"event":42}`, "event", "42"},
		{"time", `{` + at + `,"event":12345678901234567890.10}`, "event", "12345678901234567890.10"},
		{"time", `{` + at + `,"event":-1E+2}`, "event", "-1E+2"},
		{"time", `{` + at + `,"event":true}`, "event", "true"},
		{"time", `{` + at + `,"event":false}`, "event", "false"},
		{"time", `{` + at + `,"event":null}`, "event", ""},
		{"time", `{` + at + `,"event":""}`, "event", ""},
		{"time", `{` + at + `}`, "event", ""},
		{"time", `{` + at + `,"event":"first","event":"second"}`, "event", "first"},

		// Names at the top level come first, then paths.
		{"ts", caddyLine, "request.remote_ip", "2001:db8:1:2::a1"},
		{"ts", caddyLine, "request.host", "example.org"},
		{"ts", caddyLine, "request.none", ""},
		{"ts", caddyLine, "status.none", ""},
		{"ts", caddyLine, "request.headers.User-Agent.0", ""}, // a path leads only into objects
		{"ts", caddyLine, "user_id", ""},
		{"@timestamp", ecsLine, "source.ip", "192.0.2.1"},
		{"@timestamp", ecsLine, "user.name", "alice"},
		{"@timestamp", ecsLine, "a|b", "pipe"},
		{"@timestamp", ecsLine, "#", "hash"},
		{"@timestamp", ecsLine, "*", "star"},
		{"@timestamp", ecsLine, "user.*", ""},
		{"@timestamp", ecsLine, "@this", ""},
		{"@timestamp", ecsLine, "!true", ""},
		{"@timestamp", ecsLine, "user|name", ""},
		{"@timestamp", ecsLine, "{user}", ""},
		{"@timestamp", ecsLine, "..", ""},
		{"log.time", `{"log":{"time":1741064767.089},"event":"a"}`, "event", "a"},
		{"log.time", `{"log":{"time":0},"log.time":1741064767.089,"event":"a"}`, "event", "a"},
	} {
		want := Attempt{At: time.Date(2025, 3, 4, 5, 6, 7, 89e6, time.UTC), Event: tt.want, Units: 1, Times: 1}
		got, err := jsonBy(tt.timeField).read(tt.line, tt.field)
		if missing := (missingFieldError{}); tt.want == "" && errors.As(err, &missing) {
			err = nil // an empty event does not count as an event
		}
		if err != nil || got != want {
			t.Errorf("%s of %s\ngot %v, %v\nwant %v", tt.field, tt.line, got, err, want)
		}
	}
}

func TestJSONTime(t *testing.T) {
	for _, tt := range []struct{ value, want string }{
		{`"2025-03-04T05:06:07Z"`, "2025-03-04T05:06:07Z"},
		{`"2025-03-04T06:06:07.089+01:00"`, "2025-03-04T05:06:07.089Z"},
		{`"2025-03-04T06:06:07+0100"`, "2025-03-04T05:06:07Z"},
		{`1741064767`, "2025-03-04T05:06:07Z"},
		{`"1741064767"`, "2025-03-04T05:06:07Z"},
		{`1741064767.089`, "2025-03-04T05:06:07.089Z"},
		{`"1741064767.089"`, "2025-03-04T05:06:07.089Z"},
		{`1741064767.123456789`, "2025-03-04T05:06:07.123456789Z"}, // a float64 would end at …717
		{`1.741064767e9`, "2025-03-04T05:06:07Z"},
		{`1.741064767E+09`, "2025-03-04T05:06:07Z"},
		{`"1.741064767e9"`, "2025-03-04T05:06:07Z"},
		{`1.741064767089e9`, "2025-03-04T05:06:07.089Z"},
		{`1.741064767123456789e9`, "2025-03-04T05:06:07.123456789Z"},
		{`17410647e2`, "2025-03-04T05:05:00Z"},
		{`1741064767089e-3`, "2025-03-04T05:06:07.089Z"},
		{`5e-3`, "1970-01-01T00:00:00.005Z"},
		{`0e0`, "1970-01-01T00:00:00Z"},
		{`0`, "1970-01-01T00:00:00Z"},

		{`1741064767089`, "2025-03-04T05:06:07.089Z"}, // milliseconds
		{`1.741064767089e12`, "2025-03-04T05:06:07.089Z"},

		{`"1741064767089123"`, "2025-03-04T05:06:07.089123Z"}, // microseconds, which the journal writes
		{`1741064767089123456`, "2025-03-04T05:06:07.089123456Z"},
		{`9223372036854775807`, "2262-04-11T23:47:16.854775807Z"},
		{`9223372036854775808`, `"9223372036854775808" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`},

		{`1.741064767e99`, `"1.741064767e99" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`},
		{`1e20`, `"100000000000000000000" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`},
		{`1e999999999`, `"1e999999999" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`},
		{`-1`, `"-1" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`},
		{`-1e9`, `"-1e9" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`},
		{`"e9"`, `"e9" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`},
		{`"yesterday"`, `"yesterday" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`},
		{`true`, `"true" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`},
		{`""`, `"" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`},
		{`null`, `"" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`},
		{`{"s":1}`, `its time is an object; name a field in it, as in time.name`},
		{`[1]`, `its time is an array; name a field with a single value`},
	} {
		a, err := jsonBy("time").read(`{"time":`+tt.value+`}`, anyField)
		got := a.At.Format(time.RFC3339Nano)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %s; want %s", tt.value, got, tt.want)
		}
	}
}

// TestJSONWithoutField checks that the error about a missing field lists the existing fields.
func TestJSONWithoutField(t *testing.T) {
	for field, want := range map[string]string{
		"remote_ip": `no attempt: it has no field "remote_ip"; choose one with --by: level, ts, logger, msg, request.remote_ip, request.remote_port, request.proto, request.method, request.host, request.uri, user_id, duration, ...`,
		"user_id":   "<nil>",
	} {
		if _, err := jsonBy("ts").read(caddyLine, field); fmt.Sprint(err) != want || err != nil && !errors.Is(err, errNoAttempt) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestJSONUnits(t *testing.T) {
	for _, tt := range []struct{ value, want string }{
		{`3`, "3"},
		{`"3"`, "3"},
		{`3.0`, "3"},
		{`1e2`, "100"},
		{`1.5e1`, "15"},
		{`9007199254740993`, "9007199254740993"}, // does not fit into a float64
		{`null`, "1"},
		{`0`, `"0" is not a number of units; write 1 or more`},
		{`-3`, `"-3" is not a number of units; write 1 or more`},
		{`1.5`, `"1.5" is not a number of units; write 1 or more`},
		{`1e99`, `"1e99" is not a number of units; write 1 or more`},
		{`""`, "1"}, // like an empty CSV column
		{`"many"`, `"many" is not a number of units; write 1 or more`},
		{`true`, `"true" is not a number of units; write 1 or more`},
		{`[3]`, `its units is an array; name a field with a single value`},
	} {
		a, err := jsonBy("time").read(`{"time":1,"event":"a","units":`+tt.value+`}`, "event")
		got := strconv.FormatInt(a.Units, 10)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %s; want %s", tt.value, got, tt.want)
		}
	}
}

func TestJSONUnreadable(t *testing.T) {
	for _, tt := range []struct{ line, field, want string }{
		{``, "event", "it is not a JSON object"},
		{`[]`, "event", "it is not a JSON object"},
		{`"a"`, "event", "it is not a JSON object"},
		{`{"time":1,"event":"a"`, "event", "it is not a JSON object"},
		{`{"time":1,"event":"a"}}`, "event", "it is not a JSON object"},
		{`{"time":1,"event":"a"} {"time":2}`, "event", "it is not a JSON object"},
		{`{time:1}`, "event", "it is not a JSON object"},
		{`{'time':1}`, "event", "it is not a JSON object"},
		{"{\"time\":1,\"event\":\"a\tb\"}", "event", "it is not a JSON object"},
		{"2025-03-04T05:06:07Z,{}", "event", "it is not a JSON object"},
		{`{"time":1,"request":{"remote_ip":"192.0.2.1"}}`, "request", "its request is an object; name a field in it, as in request.name"},
		{`{"time":1,"ips":["192.0.2.1"]}`, "ips", "its ips is an array; name a field with a single value"},
		{`{}`, "event", "it is an empty object"},
		{caddyLine, "level", `it has no field "time"; choose one with --time-field: ts`},
		{`{"EdgeStartTimestamp":1741089607089000000,"EdgeResponseBytes":1741089}`, "event", `it has no field "time"; choose one with --time-field: EdgeStartTimestamp`},
		{`{"a\u001b[31m\"b":1,"c d":2}`, "event", `it has no field "time"; choose one with --time-field: a\x1b[31m\"b, c d`},
	} {
		if _, err := jsonBy("time").read(tt.line, tt.field); err == nil || err.Error() != tt.want {
			t.Errorf("%s\ngot %v\nwant %s", tt.line, err, tt.want)
		}
	}
}

func TestIsJSON(t *testing.T) {
	for line, want := range map[string]bool{
		`{}`: true, "{\"a\":\t1}\r": true, caddyLine: true, ecsLine: true,
		``: false, `1`: false, `[{}]`: false, `{`: false, `{}{}`: false, `{"a"}`: false, "\v{}": false,
	} {
		if isJSON(line) != want {
			t.Errorf("%q: want %v", line, want)
		}
	}
}

// FuzzJSONAgreesWithStdlib checks that this package and encoding/json agree on whether a line is an
// object, and on the value of each field.
func FuzzJSONAgreesWithStdlib(f *testing.F) {
	for _, line := range []string{
		caddyLine, pinoLine, ecsLine, `{}`, `{"a":"\u00e9\ud83d\ude00","b":1e5,"c":null,"d":true}`, `{"a":[1,{"b":2}],"a.b":3}`,
		`{"a":-0.5E-7}`, `{"a":01}`, `{"a":1,}`, `{"\\":"\/"}`, "{\"\x7f\":\"\u2028\"}", `{"a":"\ud800"}`, `{"a":1,"a":2}`,
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var object map[string]json.RawMessage
		valid := json.Unmarshal([]byte(line), &object) == nil && object != nil
		if isJSON(line) != valid {
			t.Fatalf("%q: want %v", line, valid)
		}
		members := 0
		if valid {
			gjson.Parse(line).ForEach(func(_, _ gjson.Result) bool { members++; return true })
		}
		if members != len(object) { // a name occurs twice
			return
		}
		for name, raw := range object {
			got, err := text(member(gjson.Parse(line), name), name)
			want, isText := stdlibText(raw)
			if !replaced(name+want) && (got != want || isText != (err == nil)) {
				t.Errorf("%q of %q: got %q, %v; want %q", name, line, got, err, want)
			}
		}
	})
}

// stdlibText returns what text should return, according to encoding/json.
func stdlibText(raw json.RawMessage) (s string, isText bool) {
	switch {
	case raw[0] == '{' || raw[0] == '[':
		return "", false
	case string(raw) == "null":
		return "", true
	case json.Unmarshal(raw, &s) == nil:
		return s, true
	}
	return string(raw), true
}

// replaced reports whether encoding/json replaced invalid UTF-8 or half of a surrogate pair. gjson
// leaves such bytes unchanged.
func replaced(s string) bool { return strings.ContainsRune(s, utf8.RuneError) }

// FuzzJSONFindsAnyName checks that every name finds its own field, both at the top level and at the
// end of a path.
func FuzzJSONFindsAnyName(f *testing.F) {
	for _, name := range []string{"user", "source.ip", "@timestamp", "a|b", "#", "*", `\*`, "@this", "!x", "{a,b}", "[a]", "..", "", "\x00", `"`, "é"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if !utf8.ValidString(name) {
			return
		}
		inner := map[string]any{name: "found", name + "*": "other"}
		for path, object := range map[string]any{name: inner, "outer." + name: map[string]any{"outer": inner, "other": inner}} {
			line, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			want := "found"
			if path != name && strings.Contains(name, ".") {
				want = "" // the path is longer
			}
			if got := lookUp(gjson.ParseBytes(line), path); got.Str != want {
				t.Errorf("%q of %s: got %q; want %q", path, line, got.Str, want)
			}
		}
	})
}

// FuzzJSONTimeIsExact checks that a time is exactly the number of seconds in the line, truncated to
// nanoseconds.
func FuzzJSONTimeIsExact(f *testing.F) {
	f.Add(uint64(1741064767089), int8(-3), uint8(1))
	f.Add(uint64(1741064767123456789), int8(-9), uint8(0))
	f.Add(uint64(17), int8(8), uint8(2))
	f.Add(uint64(1741064767089), int8(0), uint8(1))
	f.Add(uint64(1741064767089), int8(5), uint8(1))
	f.Fuzz(func(t *testing.T, mantissa uint64, exponent int8, point uint8) {
		exponent %= 12
		whole := strconv.FormatUint(mantissa, 10)
		written := fmt.Sprintf("%se%d", whole, exponent)
		if n := int(point) % len(whole); n > 0 {
			written = fmt.Sprintf("%s.%se%d", whole[:n], whole[n:], int(exponent)+len(whole)-n)
		}
		seconds, ok := new(big.Rat).SetString(written)
		if !ok {
			t.Fatalf("%s is not a number", written)
		}
		a, err := jsonBy("time").read(`{"time":`+written+`}`, anyField)
		if fits := floor(seconds).IsInt64(); fits != (err == nil) {
			t.Fatalf("%s: got %v, %v", written, a.At, err)
		}
		if err != nil {
			return
		}
		got := new(big.Int).Add(new(big.Int).Mul(big.NewInt(a.At.Unix()), big.NewInt(1e9)), big.NewInt(int64(a.At.Nanosecond())))
		if want := exactNanos(seconds); got.Cmp(want) != 0 {
			t.Errorf("%s: got %v; want %v ns", written, got, want)
		}
	})
}

// exactNanos converts a number of seconds to nanoseconds since 1970. A number beyond inRange is
// taken as whole milliseconds; if it is still beyond inRange, as microseconds, and then as
// nanoseconds.
func exactNanos(seconds *big.Rat) *big.Int {
	n := floor(seconds)
	switch {
	case seconds.Cmp(big.NewRat(maxMS, 1000)) < 0:
		return floor(new(big.Rat).Mul(seconds, big.NewRat(1e9, 1)))
	case n.Cmp(big.NewInt(maxMS)) < 0:
		return n.Mul(n, big.NewInt(1e6))
	case n.Cmp(big.NewInt(maxMS*1000)) < 0:
		return n.Mul(n, big.NewInt(1e3))
	}
	return n
}

func floor(r *big.Rat) *big.Int { return new(big.Int).Quo(r.Num(), r.Denom()) }
