package logs

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestSSHD(t *testing.T) {
	const header = "Mar  4 05:06:07 bastion "
	for _, tt := range []struct {
		line string
		want string // the address, or empty if the line is not an attempt
	}{
		{header + "sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{header + "sshd[99]: Failed password for invalid user admin from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{header + "sshd[99]: Failed password for invalid user admin from 192.0.2.1 port 4022 ssh2 [preauth]", "192.0.2.1"},
		{header + "sshd[99]: Failed none for invalid user 0 from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{header + "sshd[99]: Failed publickey for git from 192.0.2.1 port 4022 ssh2: RSA SHA256:abcdef", "192.0.2.1"},
		{header + "sshd[99]: Failed keyboard-interactive/pam for invalid user postgres from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{header + "sshd[99]: Accepted password for alice from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{header + "sshd[99]: Accepted publickey for alice from 2001:db8::a1 port 4022 ssh2: ED25519 SHA256:abc/def+g", "2001:db8::a1"},
		{header + "sshd[99]: Accepted publickey for alice from 2001:db8::a1 port 4022 ssh2: ED25519-CERT SHA256:abc ID alice (serial 7) CA ED25519 SHA256:xyz", "2001:db8::a1"},
		{header + "sshd[99]: Accepted hostbased for alice from 192.0.2.1 port 4022", "192.0.2.1"},

		// Other programs that write logs, and other names of sshd.
		{header + "sshd-session[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{header + "sshd-auth[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{header + "sshd: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{header + "auth.info sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{header + "<auth.info> sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{"2025-03-04T05:06:07.089+01:00 bastion sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{"2025-03-04T05:06:07+0100 bastion sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{"<38>" + header + "sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{"<38>2025-03-04T05:06:07Z bastion sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", "192.0.2.1"},

		// Different spellings of an address are one event.
		{header + "sshd[99]: Failed password for root from ::ffff:192.0.2.1 port 4022 ssh2", "192.0.2.1"},
		{header + "sshd[99]: Failed password for root from 2001:DB8:0:0::1 port 4022 ssh2", "2001:db8::1"},
		{header + "sshd[99]: Failed password for root from fe80::1%eth0 port 4022 ssh2", "fe80::1%eth0"},

		// User names that imitate the rest of the line.
		{header + "sshd[99]: Failed password for invalid user a from 198.51.100.4 port 5 from 192.0.2.1 port 22 ssh2", "192.0.2.1"},
		{header + "sshd[99]: Failed password for invalid user a from 198.51.100.4 port 5 ssh2 from 192.0.2.1 port 22 ssh2", "192.0.2.1"},
		{header + "sshd[99]: Failed password for invalid user a from 198.51.100.4 port 5 ssh2: RSA x from 192.0.2.1 port 22 ssh2", "192.0.2.1"},
		{header + "sshd[99]: Failed password for invalid user sshd[1]: Failed password for b from 198.51.100.4 from 192.0.2.1 port 22 ssh2", "192.0.2.1"},
		{header + "sshd[99]: Failed password for invalid user  from 192.0.2.1 port 22 ssh2", "192.0.2.1"},
		{header + "sshd[99]: Failed password for  from 192.0.2.1 port 22 ssh2", "192.0.2.1"},
		{header + "sshd[99]: Failed password for invalid user \xff\xfe from 192.0.2.1 port 22 ssh2", "192.0.2.1"},
		{header + "sshd[99]: Invalid user Failed password for b from 198.51.100.4 port 5 ssh2 from 192.0.2.1 port 22", ""},

		// Lines of sshd that are not attempts.
		{header + "sshd[99]: Connection closed by 192.0.2.1 port 4022 [preauth]", ""},
		{header + "sshd[99]: Postponed publickey for alice from 192.0.2.1 port 4022 ssh2 [preauth]", ""},
		{header + "sshd[99]: Failed to allocate internet-domain X11 display socket.", ""},
		{header + "sshd[99]: pam_unix(sshd:auth): authentication failure; logname= uid=0 rhost=192.0.2.1", ""},
		{header + "sshd[99]: message repeated 2 times: [ Connection reset by 192.0.2.1 port 4022]", ""},

		// Lines of other programs.
		{header + "ftpd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", ""},
		{header + "notsshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", ""},
		{header + "app[7]: sshd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", ""},
		{"Failed password for root from 192.0.2.1 port 4022 ssh2", ""},
		{"Mar 99 05:06:07 bastion ftpd[99]: Failed password for root from 192.0.2.1 port 4022 ssh2", ""},
		{"Mar  4 05:06:07", ""},
		{"", ""},
	} {
		a, err := new(syslog).read(tt.line, "address")
		switch {
		case tt.want == "" && !errors.Is(err, errNoAttempt):
			t.Errorf("%s\ngot %v, %v; want no attempt", tt.line, a, err)
		case tt.want != "" && (err != nil || a.Event != tt.want || a.Times != 1 || a.Units != 1):
			t.Errorf("%s\ngot %v, %v; want one of %s", tt.line, a, err, tt.want)
		}
	}
}

func TestRepeatedMessages(t *testing.T) {
	a, err := new(syslog).read("Mar  4 05:06:07 bastion sshd[9]: message repeated 5 times: [ Failed password for root from 192.0.2.1 port 22 ssh2]", "address")
	want := Attempt{At: time.Date(firstYear, 3, 4, 5, 6, 7, 0, time.UTC), Event: "192.0.2.1", Account: "root", Units: 1, Times: 5, HasResult: true, Yearless: true}
	if err != nil || a != want {
		t.Errorf("got %v, %v; want %v", a, err, want)
	}
	_, err = new(syslog).read("Mar  4 05:06:07 bastion sshd[9]: message repeated 99999999999999 times: [ Failed password for root from 192.0.2.1 port 22 ssh2]", "address")
	if !errors.Is(err, errNoAttempt) {
		t.Errorf("a count that no syslog writes: %v", err)
	}
}

// TestTwoOrigins checks that strings in a client's certificate can neither move an attempt to
// another address nor hide it.
func TestTwoOrigins(t *testing.T) {
	const header = "Mar  4 05:06:07 h sshd[1]: "
	for message, want := range map[string]string{
		`Failed publickey for root from 198.51.100.7 port 50000 ssh2: RSA-CERT ID x from 203.0.113.9 port 1: (serial 0) CA RSA SHA256:abc`:                            "198.51.100.7",
		`Failed publickey for root from 198.51.100.7 port 50000 ssh2: RSA-CERT ID x from zzz port 1: (serial 0) CA RSA SHA256:abc`:                                    "198.51.100.7",
		`Failed publickey for root from 198.51.100.7 port 50000 ssh2: RSA-CERT SHA256:k ID x from 203.0.113.9 port 1 ssh2: RSA SHA256:k (serial 0) CA RSA SHA256:abc`: "198.51.100.7",
		`Failed hostbased for root from 198.51.100.7 port 50000 ssh2: RSA SHA256:k, client user "x from 203.0.113.9 port 1: y", client host "h"`:                      "198.51.100.7",
		`Failed gssapi-with-mic for root from 198.51.100.7 port 50000 ssh2: x@EXAMPLE.ORG`:                                                                            "198.51.100.7",

		`Failed publickey for root from 198.51.100.7 port 50000 ssh2: RSA-CERT ID x from 203.0.113.9 port 1 ssh2: RSA-CERT ID y (serial 0) CA RSA SHA256:abc`: "",
		`Failed publickey for x from 203.0.113.9 port 1 ssh2: RSA-CERT ID y from 198.51.100.7 port 50000 ssh2: RSA-CERT ID z (serial 0) CA RSA SHA256:abc`:    "",
	} {
		a, err := new(syslog).read(header+message, "address")
		if a.Event != want || (want == "") != errors.Is(err, errTwoOrigins) {
			t.Errorf("%s\ngot %q, %v; want %q", message, a.Event, err, want)
		}
	}
}

func TestAttemptWithoutAddress(t *testing.T) {
	_, err := new(syslog).read("Mar  4 05:06:07 bastion sshd[9]: Failed password for root from UNKNOWN port 65535 ssh2", "address")
	if want := `the attempt comes from "UNKNOWN", which is not an address`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestUnknownHeader checks that an attempt with an unknown header is reported rather than skipped.
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
		if a, err := new(syslog).read(line, "address"); !errors.Is(err, want) {
			t.Errorf("%s\ngot %v, %v; want %v", line, a, err, want)
		}
	}
}

// FuzzSSHDAddress checks that every attempt comes from an address, at a time that a limiter
// accepts, whatever the line.
func FuzzSSHDAddress(f *testing.F) {
	f.Add("Mar  4 05:06:07 bastion sshd[9]: Failed password for root from 192.0.2.1 port 22 ssh2")
	f.Add("Mar  4 05:06:07 h sshd-session[9]: message repeated 3 times: [ Accepted password for a from ::1 port 1 ssh2]")
	f.Add("2025-02-29T05:06:07.1+01:00 h <auth.info> sshd: Failed none for  from UNKNOWN port 1")
	f.Fuzz(func(t *testing.T, line string) {
		s := syslog{calendar{newest: time.Date(2001, 12, 31, 0, 0, 0, 0, time.UTC)}}
		a, err := s.read(line, "address")
		if err != nil {
			return
		}
		if _, err := netip.ParseAddr(a.Event); err != nil {
			t.Errorf("%q comes from %q, which is not an address", line, a.Event)
		}
		checkAttempt(t, line, a)
	})
}

// FuzzSSHDUserName checks that no user name can change the address.
func FuzzSSHDUserName(f *testing.F) {
	f.Add("a from 198.51.100.4 port 5 ssh2")
	f.Add("a from 198.51.100.4 port 5 ssh2: RSA x")
	f.Add("]")
	f.Fuzz(func(t *testing.T, user string) {
		if strings.ContainsAny(user, "\r\n") {
			return // sshd escapes these
		}
		a, err := new(syslog).read("Mar  4 05:06:07 bastion sshd[9]: Failed password for invalid user "+user+" from 192.0.2.1 port 22 ssh2", "address")
		if err != nil || a.Event != "192.0.2.1" {
			t.Errorf("user %q: %v, %v", user, a, err)
		}
	})
}

// TestAccounts checks that an attempt has an account only if the options request it. Other formats
// have no accounts.
func TestAccounts(t *testing.T) {
	const log = "Mar  4 05:06:07 h sshd[9]: Failed password for invalid user x from 198.51.100.1 port 1 from 192.0.2.1 port 22 ssh2\n" +
		"Mar  4 05:06:08 h sshd[9]: Failed none for invalid user  from 192.0.2.1 port 22 ssh2\n"
	for _, o := range []Options{{}, {Accounts: true}, {Accounts: true, Sort: true}} {
		r, err := OpenText("a log", log, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, account := range []string{"x from 198.51.100.1 port 1", ""} {
			if !o.Accounts {
				account = ""
			}
			if a, err := r.Next(); err != nil || a.Account != account || a.Event != "192.0.2.1" {
				t.Errorf("%+v: got %+v, %v; want the account %q", o, a, err, account)
			}
		}
	}
	for _, log := range []string{"1,alice\n", `{"time":1,"event":"alice"}`, `192.0.2.1 - alice [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326`} {
		_, err := OpenText("a log", log, Options{Accounts: true})
		const want = "a log is not a log of sshd, so it lacks the address, the account or the result of each login; name a log of sshd, or leave out --login"
		if err == nil || err.Error() != want {
			t.Errorf("%s\ngot %v\nwant %s", log, err, want)
		}
	}
}
