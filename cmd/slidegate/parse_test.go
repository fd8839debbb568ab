package main

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSSHD(t *testing.T) {
	const syslog = "Mar  4 05:06:07 bastion "
	for _, tt := range []struct {
		line string
		want string // the address, or nothing for no attempt
	}{
		{syslog + "sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{syslog + "sshd[99]: Failed password for invalid user admin from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{syslog + "sshd[99]: Failed password for invalid user admin from 192.0.2.1 port 4022 ssh2 [preauth]", "192.0.2.1"},
		{syslog + "sshd[99]: Failed none for invalid user 0 from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{syslog + "sshd[99]: Failed publickey for git from 192.0.2.1 port 4022 ssh2: RSA SHA256:abcdef", "192.0.2.1"},
		{syslog + "sshd[99]: Failed keyboard-interactive/pam for invalid user postgres from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{syslog + "sshd[99]: Accepted password for alice from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{syslog + "sshd[99]: Accepted publickey for alice from 2001:db8::a1 port 4022 ssh2: ED25519 SHA256:abc/def+g", "2001:db8::a1"},
		{syslog + "sshd[99]: Accepted publickey for alice from 2001:db8::a1 port 4022 ssh2: ED25519-CERT SHA256:abc ID alice (serial 7) CA ED25519 SHA256:xyz", "2001:db8::a1"},
		{syslog + "sshd[99]: Accepted hostbased for alice from 192.0.2.1 port 4022", "192.0.2.1"},

		// Other writers of logs, and other names of sshd.
		{syslog + "sshd-session[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{syslog + "sshd-auth[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{syslog + "sshd: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{syslog + "auth.info sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{syslog + "<auth.info> sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{"2025-03-04T05:06:07.089+01:00 bastion sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{"2025-03-04T05:06:07+0100 bastion sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{"<38>" + syslog + "sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{"<38>2025-03-04T05:06:07Z bastion sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},

		// One address, one event.
		{syslog + "sshd[99]: Failed password for root from ::ffff:192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{syslog + "sshd[99]: Failed password for root from 2001:DB8:0:0::1 port 4022 ssh2", "2001:db8::1"},
		{syslog + "sshd[99]: Failed password for root from fe80::1%eth0 port 4022 ssh2", "fe80::1%eth0"},

		// User names that imitate the line.
		{syslog + "sshd[99]: Failed password for invalid user a from 198.51.100.4 port 5 from 192.0.2.1 port 22 ssh2", "192.0.2.1"},
		{syslog + "sshd[99]: Failed password for invalid user a from 198.51.100.4 port 5 ssh2 from 192.0.2.1 port 22 ssh2", "192.0.2.1"},
		{syslog + "sshd[99]: Failed password for invalid user a from 198.51.100.4 port 5 ssh2: RSA x from 192.0.2.1 port 22 ssh2", "192.0.2.1"},
		{syslog + "sshd[99]: Failed password for invalid user sshd[1]: Failed password for b from 198.51.100.4 from 192.0.2.1 port 22 ssh2", "192.0.2.1"},
		{syslog + "sshd[99]: Failed password for invalid user  from 192.0.2.1 port 22 ssh2", "192.0.2.1"},
		{syslog + "sshd[99]: Failed password for  from 192.0.2.1 port 22 ssh2", "192.0.2.1"},
		{syslog + "sshd[99]: Failed password for invalid user \xff\xfe from 192.0.2.1 port 22 ssh2", "192.0.2.1"},
		{syslog + "sshd[99]: Invalid user Failed password for b from 198.51.100.4 port 5 ssh2 from 192.0.2.1 port 22", ""},

		// Lines of sshd that are no attempt.
		{syslog + "sshd[99]: Connection closed by 192.0.2.1 port 4022 [preauth]", ""},
		{syslog + "sshd[99]: Postponed publickey for alice from 192.0.2.1 port 4022 ssh2 [preauth]", ""},
		{syslog + "sshd[99]: Failed to allocate internet-domain X11 display socket.", ""},
		{syslog + "sshd[99]: pam_unix(sshd:auth): authentication failure; logname= uid=0 rhost=192.0.2.1", ""},
		{syslog + "sshd[99]: message repeated 2 times: [ Connection reset by 192.0.2.1 port 4022]", ""},

		// Lines of others.
		{syslog + "ftpd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", ""},
		{syslog + "notsshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", ""},
		{syslog + "app[7]: sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", ""},
		{"Failed password for root from 192.0.2.1 port 4022 ssh2", ""},
		{"Mar 99 05:06:07 bastion ftpd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", ""},
		{"Mar  4 05:06:07", ""},
		{"", ""},
	} {
		var c calendar
		a, err := c.sshd(tt.line)
		switch {
		case tt.want == "" && !errors.Is(err, errNoAttempt):
			t.Errorf("%s\ngot %v, %v; want no attempt", tt.line, a, err)
		case tt.want != "" && (err != nil || a.event != tt.want || a.times != 1 || a.units != 1):
			t.Errorf("%s\ngot %v, %v; want one of %s", tt.line, a, err, tt.want)
		}
	}
}

func TestRepeatedMessages(t *testing.T) {
	var c calendar
	a, err := c.sshd("Mar  4 05:06:07 bastion sshd[9]: message repeated 5 times: [ Failed password for root from 192.0.2.1 port 22 ssh2]")
	want := attempt{time.Date(firstYear, 3, 4, 5, 6, 7, 0, time.UTC), "192.0.2.1", 1, 5, true}
	if err != nil || a != want {
		t.Errorf("got %v, %v; want %v", a, err, want)
	}
	_, err = c.sshd("Mar  4 05:06:07 bastion sshd[9]: message repeated 99999999999999 times: [ Failed password for root from 192.0.2.1 port 22 ssh2]")
	if !errors.Is(err, errNoAttempt) {
		t.Errorf("a count that no syslog writes: %v", err)
	}
}

func TestAttemptWithoutAddress(t *testing.T) {
	var c calendar
	_, err := c.sshd("Mar  4 05:06:07 bastion sshd[9]: Failed password for root from UNKNOWN port 65535 ssh2")
	if want := `the attempt comes from "UNKNOWN", which is no address`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestUnknownHeader: an attempt with a header that nobody knows is no line to pass over in silence.
func TestUnknownHeader(t *testing.T) {
	const failed = "Failed password for root from 192.0.2.1 port 4022 ssh2"
	for line, want := range map[string]error{
		"Tue 2025-03-04 06:00:05 UTC bastion sshd[99]: " + failed:                                   errHeader,
		"2025-03-04 06:00:10 bastion sshd[99]: " + failed:                                           errHeader,
		"2025-03-04 06:00:10 bastion sshd-session[99]: message repeated 2 times: [ " + failed + "]": errHeader,
		"Mar  4 05:06:07 sshd[99]: " + failed:                                                       errHeader,
		"2025-03-04T05:06:07Z sshd: Accepted publickey for a from ::1 port 4022 ssh2: RSA x":        errHeader,
		"Mar 99 05:06:07 bastion sshd[99]: " + failed:                                               errHeader,
		"Mar  4 05:06:07 bastion app sshd[99]: " + failed:                                           errHeader,
		"<38>1 2025-03-04T05:06:07Z bastion sshd 99 - - " + failed:                                  errHeader,

		"Tue 2025-03-04 06:00:05 UTC bastion sshd[99]: Connection closed by 192.0.2.1 port 4022": errNoAttempt,
		"Tue 2025-03-04 06:00:05 UTC bastion ftpd[99]: " + failed:                                errNoAttempt,
		"Mar  4 05:06:07 bastion app[7]: sshd[99]: " + failed:                                    errNoAttempt,
	} {
		var c calendar
		if a, err := c.sshd(line); !errors.Is(err, want) {
			t.Errorf("%s\ngot %v, %v; want %v", line, a, err, want)
		}
	}
}

// TestYears steps through logs: a line, and the time it takes.
func TestYears(t *testing.T) {
	type step struct{ stamp, want string }
	for name, steps := range map[string][]step{
		"forward": {
			{"Dec 30 23:00:00", "2001-12-30T23:00:00Z"},
			{"Jan  1 00:00:01", "2002-01-01T00:00:01Z"},
			{"Dec 31 23:59:59", "2001-12-31T23:59:59Z"}, // a step back over the new year
			{"Jan  1 00:00:02", "2002-01-01T00:00:02Z"},
			{"Oct  5 00:00:00", "2002-10-05T00:00:00Z"}, // nine quiet months
			{"Mar  1 00:00:00", "2003-03-01T00:00:00Z"},
		},
		"small steps back": {
			{"Mar 31 03:00:00", "2001-03-31T03:00:00Z"},
			{"Mar 31 02:00:00", "2001-03-31T02:00:00Z"}, // summer time ends
			{"Mar 10 00:00:00", "2001-03-10T00:00:00Z"},
			{"Mar  1 04:00:00", "2001-03-01T04:00:00Z"}, // just within 30 days
			{"Mar  1 02:00:00", "2002-03-01T02:00:00Z"},
		},
		"begins with a leap day": {
			{"Feb 29 12:00:00", "2004-02-29T12:00:00Z"},
			{"Mar  1 12:00:00", "2004-03-01T12:00:00Z"},
		},
		"reaches a leap day": {
			{"Feb 28 12:00:00", "2001-02-28T12:00:00Z"},
			{"Feb 29 12:00:00", "2004-02-29T12:00:00Z"},
			{"Feb 28 12:00:00", "2004-02-28T12:00:00Z"},
		},
		"years come and go": {
			{"2024-12-31T23:30:00-01:00", "2025-01-01T00:30:00Z"},
			{"Jan  1 01:00:00", "2025-01-01T01:00:00Z"},
			{"Dec 31 23:00:00", "2024-12-31T23:00:00Z"},
			{"2026-06-01T00:00:00Z", "2026-06-01T00:00:00Z"},
			{"Jun  1 00:00:01", "2026-06-01T00:00:01Z"},
		},
		"odd forms": {
			{"Mar 4 05:06:07", "2001-03-04T05:06:07Z"},
			{"Mar  4 05:06:07.25", "2001-03-04T05:06:07.25Z"},
		},
	} {
		var c calendar
		for _, s := range steps {
			at, rest, ok := c.cut(s.stamp + " bastion CRON[1]: hello")
			if got := at.UTC().Format(time.RFC3339Nano); !ok || got != s.want || rest != "bastion CRON[1]: hello" {
				t.Errorf("%s: %s is %s, %q, %v; want %s", name, s.stamp, got, rest, ok, s.want)
			}
		}
	}
}

func TestParseEvent(t *testing.T) {
	at := time.Date(2025, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, tt := range []struct {
		line string
		want attempt
	}{
		{"2025-03-04T05:06:07Z,alice", attempt{at, "alice", 1, 1, false}},
		{"2025-03-04T05:06:07Z,alice,3", attempt{at, "alice", 3, 1, false}},
		{"2025-03-04T06:06:07.125+01:00,alice", attempt{at.Add(125 * time.Millisecond), "alice", 1, 1, false}},
		{"1741064767,alice", attempt{at, "alice", 1, 1, false}},
		{"1741064767.125,alice", attempt{at.Add(125 * time.Millisecond), "alice", 1, 1, false}},
		{"1741064767.1234567899,alice", attempt{at.Add(123456789), "alice", 1, 1, false}},
		{"0,alice", attempt{time.Unix(0, 0), "alice", 1, 1, false}},
		{" 1741064767 , alice smith , 2 ", attempt{at, "alice smith", 2, 1, false}},
		{`1741064767,"alice, or ""bob"", or both",2`, attempt{at, `alice, or "bob", or both`, 2, 1, false}},
		{`1741064767, "alice"`, attempt{at, "alice", 1, 1, false}},
		{"1741064767,\xff\x00{}", attempt{at, "\xff\x00{}", 1, 1, false}},
	} {
		got, err := parseEvent(tt.line)
		if err != nil || !cmp.Equal(got, tt.want, cmp.AllowUnexported(attempt{})) {
			t.Errorf("%s\ngot %v, %v; want %v", tt.line, got, err, tt.want)
		}
	}
}

func TestParseEventRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"":                                      `fields between commas: 1; write time,event or time,event,units`,
		"alice":                                 `fields between commas: 1; write time,event or time,event,units`,
		"1741064767;alice":                      `fields between commas: 1; write time,event or time,event,units`,
		"1741064767,alice,1,2":                  `fields between commas: 4; write time,event or time,event,units`,
		"1741064767,":                           `the event is empty`,
		"1741064767,  ,2":                       `the event is empty`,
		"yesterday,alice":                       `"yesterday" is no time; write 2025-03-04T05:06:07Z or seconds since 1970`,
		"2025-03-04 05:06:07,alice":             `"2025-03-04 05:06:07" is no time; write 2025-03-04T05:06:07Z or seconds since 1970`,
		"-5,alice":                              `"-5" is no time; write 2025-03-04T05:06:07Z or seconds since 1970`,
		"1.7e9,alice":                           `"1.7e9" is no time; write 2025-03-04T05:06:07Z or seconds since 1970`,
		"1741064767.+5,alice":                   `"1741064767.+5" is no time; write 2025-03-04T05:06:07Z or seconds since 1970`,
		"1741064767000,alice":                   `"1741064767000" lies beyond the year 6000; write seconds since 1970, not milliseconds`,
		"9223372036854775807,alice":             `"9223372036854775807" lies beyond the year 6000; write seconds since 1970, not milliseconds`,
		"1969-12-31T23:59:59Z,alice":            `"1969-12-31T23:59:59Z" is no time; write 2025-03-04T05:06:07Z or seconds since 1970`,
		"1741064767,alice,":                     `"" is no number of units; write 1 or more`,
		"1741064767,alice,0":                    `"0" is no number of units; write 1 or more`,
		"1741064767,alice,-1":                   `"-1" is no number of units; write 1 or more`,
		"1741064767,alice,1.5":                  `"1.5" is no number of units; write 1 or more`,
		"1741064767,alice,99999999999999999999": `"99999999999999999999" is no number of units; write 1 or more`,
		`1741064767,"alice`:                     `its quotes do not match; quote a field as "a, b", a quote in it as ""`,
		`1741064767,al"ice`:                     `its quotes do not match; quote a field as "a, b", a quote in it as ""`,
	} {
		if a, err := parseEvent(line); err == nil || err.Error() != want {
			t.Errorf("%s\ngot %v, %v\nwant %s", line, a, err, want)
		}
	}
}

// FuzzSSHDAddress: whatever the line, an attempt comes from an address, and at a time that a limiter takes.
func FuzzSSHDAddress(f *testing.F) {
	f.Add("Mar  4 05:06:07 bastion sshd[9]: Failed password for root from 192.0.2.1 port 22 ssh2")
	f.Add("Mar  4 05:06:07 h sshd-session[9]: message repeated 3 times: [ Accepted password for a from ::1 port 1 ssh2]")
	f.Add("2025-02-29T05:06:07.1+01:00 h <auth.info> sshd: Failed none for  from UNKNOWN port 1")
	f.Fuzz(func(t *testing.T, line string) {
		c := calendar{newest: time.Date(2001, 12, 31, 0, 0, 0, 0, time.UTC)}
		a, err := c.sshd(line)
		if err != nil {
			return
		}
		if _, err := netip.ParseAddr(a.event); err != nil {
			t.Errorf("%q comes from %q, which is no address", line, a.event)
		}
		checkAttempt(t, line, a)
	})
}

// FuzzSSHDUserName: no user name changes the address.
func FuzzSSHDUserName(f *testing.F) {
	f.Add("a from 198.51.100.4 port 5 ssh2")
	f.Add("a from 198.51.100.4 port 5 ssh2: RSA x")
	f.Add("]")
	f.Fuzz(func(t *testing.T, user string) {
		if strings.ContainsAny(user, "\r\n") {
			return // sshd writes them otherwise
		}
		var c calendar
		a, err := c.sshd("Mar  4 05:06:07 bastion sshd[9]: Failed password for invalid user " + user + " from 192.0.2.1 port 22 ssh2")
		if err != nil || a.event != "192.0.2.1" {
			t.Errorf("user %q: %v, %v", user, a, err)
		}
	})
}

// FuzzEventNotEmpty: whatever the line, an attempt has an event, and units and a time that a limiter takes.
func FuzzEventNotEmpty(f *testing.F) {
	f.Add("2025-03-04T05:06:07Z,alice,3")
	f.Add(`1741064767.125, "a, ""b""" ,2`)
	f.Add("1741064767000,alice")
	f.Fuzz(func(t *testing.T, line string) {
		if a, err := parseEvent(line); err == nil {
			checkAttempt(t, line, a)
		}
	})
}

func checkAttempt(t *testing.T, line string, a attempt) {
	t.Helper()
	if a.event == "" || a.units < 1 || a.times < 1 || a.times > 999999 || !inRange(a.at) {
		t.Errorf("%q asks for %v", line, a)
	}
}
