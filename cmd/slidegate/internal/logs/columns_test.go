package logs

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestColumns(t *testing.T) {
	at := time.Date(2025, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, tt := range []struct {
		line string
		want Attempt
	}{
		{"2025-03-04T05:06:07Z,alice", Attempt{At: at, Event: "alice", Units: 1, Times: 1}},
		{"2025-03-04T05:06:07Z,alice,3", Attempt{At: at, Event: "alice", Units: 3, Times: 1}},
		{"2025-03-04T06:06:07.125+01:00,alice", Attempt{At: at.Add(125 * time.Millisecond), Event: "alice", Units: 1, Times: 1}},
		{"1741064767,alice", Attempt{At: at, Event: "alice", Units: 1, Times: 1}},
		{"1741064767.125,alice", Attempt{At: at.Add(125 * time.Millisecond), Event: "alice", Units: 1, Times: 1}},
		{"1741064767.1234567899,alice", Attempt{At: at.Add(123456789), Event: "alice", Units: 1, Times: 1}},
		{"1741064767125,alice", Attempt{At: at.Add(125 * time.Millisecond), Event: "alice", Units: 1, Times: 1}},
		{"0,alice", Attempt{At: time.Unix(0, 0), Event: "alice", Units: 1, Times: 1}},
		{" 1741064767 , alice smith , 2 ", Attempt{At: at, Event: "alice smith", Units: 2, Times: 1}},
		{`1741064767,"alice, or ""bob"", or both",2`, Attempt{At: at, Event: `alice, or "bob", or both`, Units: 2, Times: 1}},
		{`1741064767, "alice"`, Attempt{At: at, Event: "alice", Units: 1, Times: 1}},
		{"1741064767,\xff\x00{}", Attempt{At: at, Event: "\xff\x00{}", Units: 1, Times: 1}},
	} {
		got, err := (&columns{newSplitter()}).read(tt.line, "event")
		if err != nil || !cmp.Equal(got, tt.want) {
			t.Errorf("%s\ngot %v, %v; want %v", tt.line, got, err, tt.want)
		}
	}
}

func TestColumnsRefused(t *testing.T) {
	for line, want := range map[string]string{
		"":                                      `fields between commas: 1; write time,event or time,event,units`,
		"alice":                                 `fields between commas: 1; write time,event or time,event,units`,
		"1741064767;alice":                      `fields between commas: 1; write time,event or time,event,units`,
		"1741064767,alice,1,2":                  `fields between commas: 4; write time,event or time,event,units`,
		"1741064767,":                           `the event is empty`,
		"1741064767,  ,2":                       `the event is empty`,
		"yesterday,alice":                       `"yesterday" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`,
		"2025-03-04 05:06:07,alice":             `"2025-03-04 05:06:07" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`,
		"-5,alice":                              `"-5" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`,
		"1.7e9,alice":                           `"1.7e9" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`,
		"1741064767.123456789 PST,alice":        `"1741064767.123456789 PST" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`,
		"1741064767.+5,alice":                   `"1741064767.+5" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`,
		"1969-12-31T23:59:59Z,alice":            `"1969-12-31T23:59:59Z" is not a time; write 2025-03-04T05:06:07Z or seconds since 1970`,
		"1741064767,alice,":                     `"" is not a number of units; write 1 or more`,
		"1741064767,alice,0":                    `"0" is not a number of units; write 1 or more`,
		"1741064767,alice,-1":                   `"-1" is not a number of units; write 1 or more`,
		"1741064767,alice,1.5":                  `"1.5" is not a number of units; write 1 or more`,
		"1741064767,alice,99999999999999999999": `"99999999999999999999" is not a number of units; write 1 or more`,
		`1741064767,"alice`:                     `its quotes do not match; quote a field as "a, b", a quote in it as ""; a field cannot contain a newline here`,
		`1741064767,al"ice`:                     `its quotes do not match; quote a field as "a, b", a quote in it as ""`,
	} {
		if a, err := (&columns{newSplitter()}).read(line, "event"); err == nil || err.Error() != want {
			t.Errorf("%s\ngot %v, %v\nwant %s", line, a, err, want)
		}
	}
}

// TestQuotedNewlines checks that a client cannot forge a line with a newline in a quoted field.
func TestQuotedNewlines(t *testing.T) {
	for _, header := range []string{"", "time,event,note\n"} {
		var got []string
		r, err := OpenText("a log", header+strings.Join([]string{
			`1741064767,"192.0.2.1"`, `1741064768,"x`, `1741064769,198.51.100.4`, `1741064770,"198.51.100.4"`, `1741064771,198.51.100.4`, `y"`, `1741064772,192.0.2.2`,
		}, "\n"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range events(t, r) {
			got = append(got, a.Event)
		}
		if same(t, []string{"192.0.2.1", "192.0.2.2"}, got); r.Unreadable != 5 {
			t.Errorf("%+v", r.Stats)
		}
	}
}

// FuzzEventNotEmpty checks that every attempt has an event, and units and a time that a limiter
// accepts, whatever the line.
func FuzzEventNotEmpty(f *testing.F) {
	f.Add("2025-03-04T05:06:07Z,alice,3")
	f.Add(`1741064767.125, "a, ""b""" ,2`)
	f.Add("1741064767000,alice")
	f.Fuzz(func(t *testing.T, line string) {
		if a, err := (&columns{newSplitter()}).read(line, "event"); err == nil {
			checkAttempt(t, line, a)
		}
	})
}

// FuzzFieldCannotHideLine checks that a line is split in the same way whatever the line before it,
// and that it is reported as having an open quote if another quote would close it.
func FuzzFieldCannotHideLine(f *testing.F) {
	for _, line := range []string{`1,"a, ""b""",2`, `a,b"c`, `"a`, `"a"b`, `"",,""`, `a, "b"`, `""""`, `a,"`, ``} {
		f.Add(`1,"x`, line)
	}
	f.Fuzz(func(t *testing.T, before, line string) {
		if strings.ContainsAny(before+line, "\r\n") {
			return // a line cannot contain a newline
		}
		used := newSplitter()
		_, _ = used.split(before)
		got, err := used.split(line)
		want, wantErr := newSplitter().split(line)
		if !errors.Is(err, wantErr) || !slices.Equal(got, want) {
			t.Errorf("%q after %q: got %q, %v; want %q, %v", line, before, got, err, want, wantErr)
		}
		if _, closed := newSplitter().split(line + `"`); err != nil && errors.Is(err, errOpen) != (closed == nil) {
			t.Errorf("%q: %v; with another quote: %v", line, err, closed)
		}
	})
}

// TestUnusualHeader checks that below a header, the third column contains units only if its name
// says so, and that --by may name any column.
func TestUnusualHeader(t *testing.T) {
	file := write(t, "when,customer,duration_ms\n2025-03-04T05:06:07Z,carol,134\n")
	for _, by := range []string{"", "customer"} {
		r, err := Open(t.Context(), []string{file}, Options{By: By{Field: by}})
		if err != nil {
			t.Fatal(err)
		}
		if a, err := r.Next(); err != nil || a.Event != "carol" || a.Units != 1 {
			t.Errorf("by %q: %+v, %v", by, a, err)
		}
		r.Close()
	}
}
