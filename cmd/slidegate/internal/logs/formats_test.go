package logs

import (
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// noon is the time of the first attempt in every sample, in UTC.
var noon = time.Date(2025, 3, 4, 12, 0, 7, 0, time.UTC)

// samples lists invented logs as programs would write them, with the attempts that are read from
// them without flags or with --by.
var samples = []struct {
	name, kind string
	by         string
	lines      []string
	want       []string
}{
	{
		"sshd in auth.log", "*logs.syslog", "",
		[]string{
			"Mar  4 12:00:01 bastion CRON[811]: pam_unix(cron:session): session opened for user root(uid=0) by (uid=0)",
			"Mar  4 12:00:07 bastion sshd[4022]: Failed password for invalid user admin from 203.0.113.7 port 40022 ssh2",
			"Mar  4 12:00:09 bastion sshd[4022]: Accepted publickey for alice from 2001:db8::7 port 40022 ssh2: ED25519 SHA256:abc",
		},
		[]string{"203.0.113.7", "2001:db8::7"},
	},
	{
		"journalctl -o short-iso", "*logs.syslog", "",
		[]string{
			"-- Boot 5c1ab1a0c43b4a2b8a4b0d6a1f0a9d11 --",
			"2025-03-04T13:00:07+0100 bastion sshd-session[4022]: Failed password for root from 203.0.113.7 port 40022 ssh2",
		},
		[]string{"203.0.113.7"},
	},
	{
		"rsyslog of another program", "*logs.syslog", `rip=([0-9a-f.:]+)`,
		[]string{"2025-03-04T12:00:07.123456+00:00 mail dovecot: imap-login: Disconnected (auth failed, 1 attempts): user=<bob>, method=PLAIN, rip=203.0.113.7, lip=192.0.2.25"},
		[]string{"203.0.113.7"},
	},
	{
		"nginx combined", "logs.web", "",
		[]string{`203.0.113.7 - - [04/Mar/2025:12:00:07 +0000] "POST /login HTTP/2.0" 401 97 "https://example.org/" "Mozilla/5.0"`},
		[]string{"203.0.113.7"},
	},
	{
		"Apache vhost_combined", "logs.web", "",
		[]string{`www.example.org:443 203.0.113.7 - - [04/Mar/2025:13:00:07 +0100] "GET / HTTP/1.1" 200 5124 "-" "curl/8.5.0"`},
		[]string{"203.0.113.7"},
	},
	{
		"Traefik, common format", "logs.web", "path",
		[]string{`203.0.113.7 - - [04/Mar/2025:12:00:07 +0000] "GET /api?x HTTP/1.1" 200 2 "-" "-" 7 "web@docker" "http://172.17.0.2:80" 1ms`},
		[]string{"/api"},
	},
	{
		"AWS ALB", "logs.alb", "",
		[]string{
			`h2 2025-03-04T12:00:07.186641Z app/web/50dc6c495c0c9188 203.0.113.7:2817 10.0.0.66:9000 0.000 0.002 0.000 200 200 5 257 "GET https://example.org:443/a?b HTTP/2.0" "curl/8.5.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/web/73e2d6bc24d8a067 "Root=1-58337327-72bd00b0343d75b906739c42" "-" "-" 1 2025-03-04T12:00:06.000000Z "redirect" "-" "-" "10.0.0.66:9000" "200" "-" "-"`,
			`h2 2025-03-04T12:00:08.361692Z app/web/6378464905b0814a 2001:db8:4538:1:bcf4:5264:e01c:f215:50718 10.0.0.66:80 0.000 0.003 0.000 401 401 29 805 "GET https://example.org:443/ HTTP/2.0" "okhttp/4.11.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:x "Root=1-64fe5754-33ecd7461b3736944677bb97" "example.org" "session-reused" 11 2025-03-04T12:00:08.358000Z "forward" "-" "-" "10.0.0.66:80" "401" "-" "-"`,
			`https 2025-03-04T12:00:08.186641Z app/web/50dc6c495c0c9188 [2001:db8::7]:2817 - -1 -1 -1 400 - 0 0 "- http://example.org:80- -" "-" - - - "-" "-" "-" - 2025-03-04T12:00:07.000000Z "-" "-" "-" "-" "-" "-" "-"`,
		},
		[]string{"203.0.113.7", "2001:db8:4538:1:bcf4:5264:e01c:f215", "2001:db8::7"},
	},
	{
		"slog text", "*logs.logfmt", "",
		[]string{
			`time=2025-03-04T12:00:00.001Z level=INFO msg=listening addr=:8080`,
			`time=2025-03-04T12:00:07.089Z level=WARN msg="wrong password" user="alice smith" ip=203.0.113.7`,
		},
		[]string{"203.0.113.7"},
	},
	{
		"slog text of slidegate proxy", "*logs.logfmt", "route",
		[]string{`time=2025-03-04T13:00:07.089+01:00 level=INFO msg="requests get 429" route="POST /login" denied=3 events=1 most="203.0.113.7 3"`},
		[]string{"POST /login"},
	},
	{
		"logfmt of go-kit", "*logs.logfmt", "",
		[]string{`ts=2025-03-04T12:00:07.089123Z caller=http.go:81 level=info method=GET path="/a b" remote_addr=203.0.113.7:40022 took=1.2ms`},
		[]string{"203.0.113.7"},
	},
	{
		"slog's default handler", "*logs.goLog", "",
		[]string{"2025/03/04 12:00:07 WARN wrong password user=alice remote=203.0.113.7:40022"},
		[]string{"203.0.113.7"},
	},
	{
		"Go's log", "*logs.goLog", `from ([0-9a-f.:]+)`,
		[]string{
			"2025/03/04 12:00:00 server.go:12: listening on :8080",
			"2025/03/04 12:00:07.123456 server.go:81: login of alice from 203.0.113.7 failed",
		},
		[]string{"203.0.113.7"},
	},
	{
		"Docker's json-file, nginx in it", "logs.web", "",
		[]string{`{"log":"203.0.113.7 - - [04/Mar/2025:12:00:07 +0000] \"GET / HTTP/1.1\" 200 615 \"-\" \"curl/8.5.0\"\n","stream":"stdout","time":"2025-03-04T12:00:07.089123456Z"}`},
		[]string{"203.0.113.7"},
	},
	{
		"Docker's json-file, lines without a time in it", "*logs.freeText", `from ([0-9a-f.:]+)`,
		[]string{
			`{"log":"ready\n","stream":"stderr","time":"2025-03-04T12:00:00.089123456Z"}`,
			`{"log":"login from 203.0.113.7 failed\n","stream":"stderr","time":"2025-03-04T12:00:07.089123456Z"}`,
		},
		[]string{"203.0.113.7"},
	},
	{
		"docker logs -t, JSON in it", "*logs.jsonLines", "",
		[]string{`2025-03-04T12:00:07.089123456Z {"level":"warn","msg":"wrong password","client_ip":"203.0.113.7"}`},
		[]string{"203.0.113.7"},
	},
	{
		"Kubernetes, nginx in it", "logs.web", "",
		[]string{
			`2025-03-04T13:00:07.08912345+01:00 stdout F 203.0.113.7 - - [04/Mar/2025:12:00:07 +0000] "GET / HTTP/1.1" 200 615 "-" "curl/8.5.0" "-"`,
			`2025-03-04T13:00:08.089123456+01:00 stdout P 203.0.113.8 - - [04/Mar/2025:12:00:08 +0000] "GET /a`,
			`2025-03-04T13:00:08.089123456+01:00 stdout F 198.51.100.4 - - [04/Mar/2025:12:00:08 +0000] "GET /b HTTP/1.1" 200 615 "-" "curl/8.5.0" "-"`,
		},
		[]string{"203.0.113.7", "203.0.113.8"},
	},
	{
		"times of nine digits or fewer", "*logs.freeText", `from ([0-9a-f.:]+)`,
		[]string{"2025-03-04T12:00:07.089123456Z login from 203.0.113.7", "2025-03-04T12:00:08.08912345Z login from 203.0.113.8", "2025-03-04T12:00:09Z login from 203.0.113.9"},
		[]string{"203.0.113.7", "203.0.113.8", "203.0.113.9"},
	},
	{
		"Caddy", "*logs.jsonLines", "",
		[]string{
			`{"level":"info","ts":1741089600.5,"logger":"http.log","msg":"server running","name":"srv0","protocols":["h1","h2","h3"]}`,
			strings.Replace(strings.Replace(caddyLine, "1741064767", "1741089607", 1), "2001:db8:1:2::a1", "203.0.113.7", 1),
		},
		[]string{"203.0.113.7"},
	},
	{
		"Traefik JSON", "*logs.jsonLines", "",
		[]string{`{"ClientAddr":"203.0.113.7:40022","ClientHost":"203.0.113.7","ClientUsername":"-","DownstreamStatus":401,"Duration":81733,"RequestMethod":"POST","RequestPath":"/login","StartUTC":"2025-03-04T12:00:06.9Z","level":"info","msg":"","time":"2025-03-04T12:00:07Z"}`},
		[]string{"203.0.113.7"},
	},
	{
		"nginx JSON with its local time", "*logs.jsonLines", "",
		[]string{`{"time":"04/Mar/2025:13:00:07 +0100","remote_addr":"203.0.113.7","request":"GET / HTTP/1.1","status":200}`},
		[]string{"203.0.113.7"},
	},
	{
		"CSV with a header", "*logs.csvLines", "",
		[]string{`id,timestamp,user,ip,units`, `1,2025-03-04 12:00:07,"Smith, Alice",203.0.113.7,2`, `2,2025-03-04 12:00:08.5+00,bob,2001:db8::7,`, `3,2025-03-04 12:00:09,carol,192.0.2.3`},
		[]string{"203.0.113.7", "2001:db8::7", "192.0.2.3"},
	},
	{
		"time,event", "*logs.columns", "",
		[]string{"when,who", "1741089607,alice", "1741089608.5,bob,3"},
		[]string{"alice", "bob"},
	},
	{
		"Python's logging", "*logs.freeText", `from ([0-9a-f.:]+)`,
		[]string{"2025-03-04 12:00:07,089 - app.login - WARNING - failed login from 203.0.113.7"},
		[]string{"203.0.113.7"},
	},
	{
		"Apache's error log", "*logs.freeText", `client ([0-9a-f.:]+):`,
		[]string{"[Tue Mar 04 12:00:07.089123 2025] [auth_basic:error] [pid 811] [client 203.0.113.7:40022] AH01617: user alice: password mismatch"},
		[]string{"203.0.113.7"},
	},
	{
		"squid", "*logs.freeText", `^\S+ +\d+ (\S+)`,
		[]string{"1741089607.089    123 203.0.113.7 TCP_MISS/200 4022 GET http://example.org/ - HIER_DIRECT/192.0.2.1 text/html"},
		[]string{"203.0.113.7"},
	},
	{
		"Postgres", "*logs.freeText", `user "(\w+)"`,
		[]string{
			"2025-03-04 12:00:01.001 UTC [811] LOG:  database system is ready to accept connections",
			`2025-03-04 12:00:07.089 UTC [812] FATAL:  password authentication failed for user "alice"`,
		},
		[]string{"alice"},
	},
	{
		"numbers before the first date", "*logs.freeText", `from (\S+)`,
		[]string{"instance 1741000000 starts", "[2025-03-04 12:00:07] login from 203.0.113.7"},
		[]string{"203.0.113.7"},
	},
	{
		"a log without years", "*logs.freeText", `rhost=(\S+)`,
		[]string{"### Mar  4 12:00:07: auth failure rhost=203.0.113.7 ###"},
		[]string{"203.0.113.7"},
	},
}

// TestSamples checks which format is detected in each sample, and which attempts are read.
func TestSamples(t *testing.T) {
	for _, tt := range samples {
		t.Run(tt.name, func(t *testing.T) {
			r, err := OpenText(tt.name, strings.Join(tt.lines, "\n"), Options{By: by(t, tt.by)})
			if err != nil {
				t.Fatal(err)
			}
			if kind := fmt.Sprintf("%T", r.files[0].format); kind != tt.kind {
				t.Errorf("it is read as %s; want %s", kind, tt.kind)
			}
			all := events(t, r)
			var got []string
			for _, a := range all {
				got = append(got, a.Event)
			}
			same(t, tt.want, got)
			at := all[0].At
			if at.Year() == firstYear {
				at = sameDate(at, noon.Year())
			}
			if off := at.Sub(noon); off < 0 || off >= time.Second || r.Unreadable > len(tt.lines)-len(tt.want) {
				t.Errorf("the first is at %v, not %v; unreadable: %s", at, noon, r.FirstUnreadable)
			}
		})
	}
}

// TestUnknownFormat checks that the error about a log of unknown format names flags that can read
// the log.
func TestUnknownFormat(t *testing.T) {
	const log = "[04.03.2025 12:00:07] Anmeldung from 203.0.113.7 abgelehnt\n"
	_, err := OpenText("a log", log, Options{})
	if err == nil {
		t.Fatal("it is read without flags")
	}
	m := regexp.MustCompile(`--by '(.*?)' .* --time-regex '(.*?)' --time-format '(.*?)'$`).FindStringSubmatch(err.Error())
	if m == nil {
		t.Fatalf("no flags in %v", err)
	}
	where, err := ParseTimeRegex(m[2])
	if err != nil {
		t.Fatal(err)
	}
	r, err := OpenText("a log", log, Options{By: by(t, m[1]), TimeRegex: where, TimeFormat: m[3]})
	if err != nil {
		t.Fatal(err)
	}
	if got := events(t, r); len(got) != 1 || got[0].Event != "203.0.113.7" || !got[0].At.Equal(noon) {
		t.Errorf("%v", got)
	}
}

// TestAmbiguousTimes checks that ambiguous times are not recognised automatically: those that do
// not show which number is the month, and unknown forms such as a 12-hour clock.
func TestAmbiguousTimes(t *testing.T) {
	for _, at := range []string{
		"03/04/2025 12:00:07", "04.03.2025 12:00:07", "3/4/2025, 12:00:07 PM", "03/04/2025 12:00:07 PM", "2025-03-04 12:00:07 PM",
		"04-Mar-2025 12:00:07.089", "2025.03.04 12:00:07", "2025/03/04 - 12:00:07", "20250304T120007", "I0304 12:00:07.089123",
	} {
		if _, err := OpenText("a log", at+" login of bob\n", Options{By: by(t, `of (\w+)`)}); err == nil || !strings.Contains(err.Error(), "has an unknown format") {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// TestYearlessFormat checks that times in a layout without a year continue from December to
// January, and that a layout without a date is rejected.
func TestYearlessFormat(t *testing.T) {
	where, err := ParseTimeRegex(`^\w(.*?)\.`)
	if err != nil {
		t.Fatal(err)
	}
	r, err := OpenText("a log", "I1231 23:59:59.9 of alice\nI0101 00:00:01.2 of bob\n", Options{By: by(t, `of (\w+)`), TimeRegex: where, TimeFormat: "0102 15:04:05"})
	if err != nil {
		t.Fatal(err)
	}
	if got := events(t, r); len(got) != 2 || got[1].At.Sub(got[0].At) != 2*time.Second || !got[0].Yearless {
		t.Errorf("%v", got)
	}
	if _, err := OpenText("a log", "I23:59:59.9 of alice\n", Options{By: by(t, `of (\w+)`), TimeRegex: where, TimeFormat: "15:04:05"}); err == nil {
		t.Error("times without a date are read")
	}
}

// TestTimeFlags checks the flags for the position and the layout of the time.
func TestTimeFlags(t *testing.T) {
	for _, tt := range []struct{ field, regex, format, by, text, want string }{
		{"", `at=(\S+)`, "", `who=(\S+)`, "id=1741000000 at=2025-03-04T12:00:07Z who=alice", "alice"},
		{"", `at=(\S+)`, "", `who=(\S+)`, "id=1741000000 at=1741089607 who=alice", "alice"},
		{"", `\[(.*?)\]`, "02.01.2006 15.04.05", `who=(\S+)`, "[04.03.2025 12.00.07] who=alice", "alice"},
		{"", `\[(.*?)\]`, "02.01.2006 15.04.05 -0700", `who=(\S+)`, "[04.03.2025 13.00.07 +0100] who=alice", "alice"},
		{"at", "", "20060102150405", "", `{"at":20250304120007,"user":"alice"}`, "alice"},
		{"at", "", "02.01.2006 15:04:05", "who", `at="04.03.2025 12:00:07" who=alice x=y`, "alice"},
		{"", "", "02.01.2006 15:04:05", "", "time,user\n04.03.2025 12:00:07,alice", "alice"},
		{"Date", "", "", "Client IP", "Date,Server,Client IP\n2025-03-04 12:00:07,web1,203.0.113.7", "203.0.113.7"},

		{"", `at=(\S+)`, "", "", "at=2025-03-04T12:00:07Z who=alice", "a log: its lines have no fields, so --by has to be a regular expression with a group, as in rip=([0-9a-f.:]+)"},
		{"", "", "02.01.2006", "", "1741089607,alice", "a log has times in a known format; leave out --time-format, or add --time-regex"},
		{"", `on=(\S+)`, "", `who=(\S+)`, "at=2025-03-04T12:00:07Z who=alice", `cannot be read with the given flags: --time-regex on=(\S+) finds no time in it`},
		{
			"", `at=(\S+)`, "02.01.2006", `who=(\S+)`, "at=2025-03-04T12:00:07Z who=alice",
			`"2025-03-04T12:00:07Z" does not match --time-format "02.01.2006"; write it as the log would show 2006-01-02 15:04:05`,
		},
	} {
		o := Options{By: by(t, tt.by), TimeField: tt.field, TimeFormat: tt.format}
		if tt.regex != "" {
			var err error
			if o.TimeRegex, err = ParseTimeRegex(tt.regex); err != nil {
				t.Fatal(err)
			}
		}
		r, err := OpenText("a log", tt.text+"\n", o)
		if err != nil {
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v: %v", tt, err)
			}
			continue
		}
		if got := events(t, r); len(got) != 1 || got[0].Event != tt.want || !got[0].At.Equal(noon) {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// TestDockerTimesCount checks that a line gets the time of its envelope, and that a line without an
// envelope is unreadable.
func TestDockerTimesCount(t *testing.T) {
	r, err := OpenText("a log", "2025-03-04T12:00:07.000000000Z Mar  1 00:00:00"+strings.TrimSuffix(failed, "\n")+"\noops\n2025-03-04T12:00:08.500000000Z\n", Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := events(t, r)
	want := Attempt{At: noon, Event: "192.0.2.1", Units: 1, Times: 1, HasResult: true}
	if len(got) != 1 || got[0] != want || r.NoAttempt != 1 || r.Unreadable != 1 || r.FirstUnreadable != "line 2 of a log: its format differs from the Docker format of the other lines" {
		t.Errorf("%v, %+v", got, r.Stats)
	}
}

// TestDockerSplitsLongLines checks that a client cannot forge a line by making Docker split a line
// after 16 KiB.
func TestDockerSplitsLongLines(t *testing.T) {
	const stamp = `","time":"2025-03-04T12:00:07Z"}` + "\n"
	r, err := OpenText("a log", `{"log":"192.0.2.1 - - [04/Mar/2025:12:00:07 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"a","stream":"stdout`+stamp+
		`{"log":"ready\n","stream":"stderr`+stamp+
		`{"log":"198.51.100.4 - - [04/Mar/2025:12:00:07 +0000] \"GET /`+`","stream":"stdout`+stamp+
		`{"log":"198.51.100.4 - - [04/Mar/2025:12:00:07 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"b\"\n","stream":"stdout`+stamp+
		`{"log":"192.0.2.2 - - [04/Mar/2025:12:00:07 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"b\"\n","stream":"stdout`+stamp, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range events(t, r) {
		got = append(got, a.Event)
	}
	if same(t, []string{"192.0.2.1", "192.0.2.2"}, got); r.NoAttempt != 2 || r.Unreadable != 1 {
		t.Errorf("%+v", r.Stats)
	}
}

// TestMostLinesNameTheEvent checks that the first line determines the time field, while the first
// lines vote on the event field, so that what a program logs at startup does not matter.
func TestMostLinesNameTheEvent(t *testing.T) {
	for _, tt := range []struct{ log, want string }{
		{`{"ts":1,"msg":"up"}` + "\n" + `{"ts":2,"remote_ip":"192.0.2.1"}` + "\n" + `{"ts":3,"time":9,"ip":"192.0.2.2"}` + "\n" + `{"ts":4,"ip":"192.0.2.2","remote_ip":"192.0.2.3"}`, "03 192.0.2.2, 04 192.0.2.2"},
		{`{"ts":1,"msg":"admin endpoint started","address":"localhost:2019"}` + strings.Repeat("\n"+`{"ts":2,"request":{"client_ip":"192.0.2.1"}}`, 2), "02 192.0.2.1, 02 192.0.2.1"},
		{"time=1 msg=listening address=:8080" + strings.Repeat("\ntime=2 msg=login ip=192.0.2.1", 2), "02 192.0.2.1, 02 192.0.2.1"},
		{"2025/03/04 05:06:07 INFO listening address=:8080" + strings.Repeat("\n2025/03/04 05:06:08 INFO login ip=192.0.2.1", 2), "08 192.0.2.1, 08 192.0.2.1"},
		{`{"@timestamp":"2025-03-04T05:06:07Z","event":{"dataset":"x"},"user":{"name":"alice"},"client":{"ip":"192.0.2.1"}}`, "07 192.0.2.1"},
	} {
		r, err := OpenText("a log", tt.log+"\n", Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range events(t, r) {
			got = append(got, a.At.Format("05 ")+a.Event)
		}
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%s\ngot %s; want %s", tt.log, got, tt.want)
		}
	}
}

// TestGoLogClientCannotForge checks that pairs in a message of Go's package log cannot forge an
// address.
func TestGoLogClientCannotForge(t *testing.T) {
	const at = "2025/03/04 05:06:07 WARN wrong password of "
	r, err := OpenText("a log", strings.Join([]string{
		at + "alice ip=192.0.2.1", at + "x ip=198.51.100.4 ip=192.0.2.1", at + `x ip=198.51.100.4 " ip=192.0.2.1`, at + `x " ip=198.51.100.4 ip=192.0.2.1`, at + `" ip=192.0.2.1`,
	}, "\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := events(t, r); len(got) != 1 || got[0].Event != "192.0.2.1" || r.Unreadable != 3 || r.NoAttempt != 1 {
		t.Errorf("%v, %+v", got, r.Stats)
	}
}

// TestPairs checks that pairs can read what slog quotes.
func TestPairs(t *testing.T) {
	const line = `time=1 msg="a b=\"c\" ip=1.2.3.4" bare "quoted ip=5.6.7.8" ip=192.0.2.1 empty= q="" cut="to the e`
	for name, want := range map[string]string{"msg": `a b="c" ip=1.2.3.4`, "ip": "192.0.2.1", "empty": "", "q": "", "cut": "to the e", "time": "1"} {
		if got, found, err := pairs(line).field(name); got != want || !found || err != nil {
			t.Errorf("%s: %q, %v, %v; want %q", name, got, found, err, want)
		}
	}
	if _, found, _ := pairs(line).field("bare"); found {
		t.Error("a word without = is a field")
	}
	same(t, []string{"time", "msg", "ip", "empty", "q", "cut"}, pairs(line).names())
}

// FuzzFormats checks that no parser panics, whatever the line, and that a limiter can decide on
// every attempt.
func FuzzFormats(f *testing.F) {
	for _, s := range samples {
		for _, line := range s.lines {
			f.Add(line, "ip")
		}
	}
	f.Fuzz(func(t *testing.T, line, field string) {
		for _, dated := range []bool{false, true} {
			kinds := append(slices.Clone(formats), asText, asUnixText)
			for _, as := range kinds {
				form := as(line, Options{}, dated)
				if form == nil {
					continue
				}
				for _, field := range []string{anyField, form.byDefault(line), field} {
					a, err := form.read(line, field)
					if at := a.At; err == nil && (a.Units < 1 || a.Times < 1 || !dated && !inRange(at)) {
						t.Errorf("%T, %s of %q: %v", form, field, line, a)
					}
				}
			}
		}
	})
}

// FuzzEnvelope checks that unwrapping an envelope returns the line that Docker wrapped.
func FuzzEnvelope(f *testing.F) {
	f.Add("203.0.113.7 - -", int64(1741089607089123456))
	f.Fuzz(func(t *testing.T, line string, nanos int64) {
		at := time.Unix(0, nanos&(1<<62-1)).UTC()
		wrapped := at.Format("2006-01-02T15:04:05.000000000Z") + " " + line
		open := envelopeOf(wrapped)
		if open == nil {
			t.Fatalf("%q is not an envelope", wrapped)
		}
		c, ok := open(wrapped)
		if _, cri := openCRI(wrapped); !ok || !cri && c.text != line || !c.at.Equal(at) {
			t.Errorf("%q: %+v, %v", wrapped, c, ok)
		}
		for _, open := range []envelope{openDockerFile, openCRI, openStamped} {
			open(line) // must not panic, whatever the line
		}
	})
}

// FuzzDateTime checks that a date is read in the same way as by time.Parse, and that every date
// that was written can be read.
func FuzzDateTime(f *testing.F) {
	f.Add("2025-03-04T05:06:07.089+01:00", int64(1741089607), int16(60))
	f.Add("2025-02-29T24:00:00Z", int64(5), int16(-210))
	f.Fuzz(func(t *testing.T, s string, seconds int64, minutes int16) {
		got, ok := parseRFC3339(s)
		if want, err := time.Parse("2006-01-02T15:04:05Z0700", strings.Replace(s, "Z", "+0000", 1)); ok && err == nil && !got.Equal(want) {
			t.Errorf("%q: got %v; want %v", s, got, want)
		}
		if want, err := time.Parse(time.RFC3339, s); err == nil && inRange(want) && want.Format(time.RFC3339Nano) == s && (!ok || !got.Equal(want)) {
			t.Errorf("%q: got %v, %v; want %v", s, got, ok, want)
		}
		at := time.Unix(seconds&(1<<37-1), 0).In(time.FixedZone("", int(minutes%(24*60))*60))
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05-0700", "2006/01/02 15:04:05 -0700", "2006-01-02 15:04:05.000Z07:00"} {
			if got, rest, ok := cutDateTime(at.Format(layout) + " rest"); ok != inRange(at) || ok && (!got.Equal(at) || rest != " rest") {
				t.Errorf("%q: got %v, %q, %v", at.Format(layout), got, rest, ok)
			}
		}
	})
}

// FuzzSlogClientCannotForge checks that no message or value lets a client change the address and
// the value that slog wrote, as text or as JSON.
func FuzzSlogClientCannotForge(f *testing.F) {
	f.Add("login", "alice")
	f.Add(`x ip=198.51.100.4`, `" ip=198.51.100.4 "`)
	f.Add("ip=198.51.100.4", `\" ip="198.51.100.4`)
	f.Add(`{"ip":"198.51.100.4"}`, "\n\x00\xff=")
	f.Fuzz(func(t *testing.T, message, user string) {
		for name, handler := range map[string]func(io.Writer) slog.Handler{
			"text": func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) },
			"JSON": func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) },
		} {
			var line strings.Builder
			slog.New(handler(&line)).Info(message, "who", user, "ip", "192.0.2.1")
			form := recognise(strings.TrimSuffix(line.String(), "\n"), Options{}, false)
			if form == nil {
				t.Fatalf("%s is not recognised: %q", name, line.String())
			}
			for field, want := range map[string]string{form.byDefault(line.String()): "192.0.2.1", "who": user} {
				a, err := form.read(strings.TrimSuffix(line.String(), "\n"), field)
				if utf8.ValidString(user) && (err != nil || a.Event != want) {
					t.Errorf("%s of %q: %q, %v; want %q", field, line.String(), a.Event, err, want)
				}
			}
		}
	})
}
