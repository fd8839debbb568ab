package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// readAll returns the events with their times, as in "alice@1.5", and the reader after the last
// attempt.
func readAll(tb testing.TB, o Options, names ...string) ([]string, *Reader) {
	tb.Helper()
	r, err := Open(tb.Context(), names, o)
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	var all []string
	for {
		a, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, r
		}
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s@%g", a.Event, float64(a.At.UnixMilli())/1000))
	}
}

// stamps returns the times of all attempts, including years.
func stamps(tb testing.TB, names ...string) []string {
	tb.Helper()
	all, _ := readAll(tb, Options{}, names...)
	for i, s := range all {
		var at float64
		if _, err := fmt.Sscanf(s[strings.LastIndex(s, "@"):], "@%g", &at); err != nil {
			tb.Fatal(err)
		}
		all[i] = time.Unix(int64(at), 0).UTC().Format(time.DateTime)
	}
	return all
}

// TestFilesAreMerged checks that files are read in the order of their times, whatever the order of
// their names, and whether or not they overlap. For equal times, the file that starts first comes
// first. A clock step within a file remains visible.
func TestFilesAreMerged(t *testing.T) {
	newest := write(t, "7,newest\n8,newest")
	middle := write(t, packed(t, "4,middle\n6,middle\n5,middle\n7,middle\n"))
	empty := write(t, "")
	oldest := write(t, "1,oldest\n9,oldest\n3,oldest\n")
	got, r := readAll(t, Options{}, newest, middle, empty, oldest)
	same(t, []string{"oldest@1", "middle@4", "middle@6", "middle@5", "middle@7", "newest@7", "newest@8", "oldest@9", "oldest@3"}, got)
	want := Stats{Lines: 9, Attempts: 9, OutOfOrder: 2, FurthestBack: 6 * time.Second, From: time.Unix(1, 0).UTC(), To: time.Unix(9, 0).UTC()}
	same(t, want, r.Stats)

	got, r = readAll(t, Options{Sort: true}, newest, middle, empty, oldest)
	same(t, []string{"oldest@1", "oldest@3", "middle@4", "middle@5", "middle@6", "middle@7", "newest@7", "newest@8", "oldest@9"}, got)
	want.OutOfOrder, want.FurthestBack = 0, 0
	same(t, want, r.Stats)
}

// TestYearsOfFiles checks that rotated logs without years follow each other, in whatever order a
// shell lists them.
func TestYearsOfFiles(t *testing.T) {
	dec20, dec27 := write(t, "Dec 20 00:00:01"+failed+"Dec 26 23:00:00"+failed), write(t, "Dec 27 00:00:01"+failed+"Jan  2 23:00:00"+failed)
	jan3 := write(t, "Jan  3 00:00:01"+failed)
	same(t, []string{"2001-12-20 00:00:01", "2001-12-26 23:00:00", "2001-12-27 00:00:01", "2002-01-02 23:00:00", "2002-01-03 00:00:01"}, stamps(t, jan3, dec27, dec20))

	dated := write(t, "2025-01-05T00:00:00Z"+failed)
	want := []string{"2024-12-20 00:00:01", "2024-12-26 23:00:00", "2024-12-27 00:00:01", "2025-01-02 23:00:00", "2025-01-03 00:00:01", "2025-01-05 00:00:00"}
	same(t, want, stamps(t, dated, jan3, dec27, dec20))

	other := write(t, "2024-06-15T12:00:00Z,192.0.2.1\n")
	same(t, []string{"2024-02-29 12:00:00", "2024-06-15 12:00:00", "2024-12-01 12:00:00"},
		stamps(t, write(t, "Dec  1 12:00:00"+failed), other, write(t, "Feb 29 12:00:00"+failed)))
	same(t, []string{"2004-02-29 12:00:00", "2004-03-01 12:00:00"}, stamps(t, write(t, "Mar  1 12:00:00"+failed), write(t, "Feb 29 12:00:00"+failed)))
}

// TestFormatIsRecognised checks that the first line that reveals the format determines it, even
// after lines that do not.
func TestFormatIsRecognised(t *testing.T) {
	for text, want := range map[string]string{
		"Mar  4 05:06:07" + failed: "192.0.2.1@9.83682367e+08",
		"-- Logs begin at Tue 2025-03-04 05:00:00 UTC. --\n2025-03-04T05:06:07+0000" + failed:             "192.0.2.1@1.741064767e+09",
		`192.0.2.1 - - [04/Mar/2025:06:06:07 +0100] "GET /a?b HTTP/1.1" 200 12` + "\n":                    "192.0.2.1@1.741064767e+09",
		`192.0.2.1 - - [04/Mar/2025:06:06:07 +0100] "GET /a?b HTTP/1.1" 200 12 "-" "curl/8.0"` + "\n":     "192.0.2.1@1.741064767e+09",
		`{"time":"2025-03-04T05:06:07Z","event":"alice"}`:                                                 "alice@1.741064767e+09",
		"\ufeff\r\n \r\ntime,event\r\n1741064767,alice\r\n":                                               "alice@1.741064767e+09",
		"no\nlog\nso\nfar\n1741064767,alice":                                                              "alice@1.741064767e+09",
		"Mar  4 05:06:07 h CRON[1]: hello\nMar  4 05:06:08" + failed + "Mar  4 05:06:09 h CRON[1]: hello": "192.0.2.1@9.83682368e+08",
		packed(t, "1741064767,alice\n"):                                                                   "alice@1.741064767e+09",
		packed(t, "1741064767,al") + packed(t, "ice\n"):                                                   "alice@1.741064767e+09",
	} {
		got, _ := readAll(t, Options{}, write(t, text))
		if len(got) != 1 || got[0] != want {
			t.Errorf("%q\ngot %v, want %s", text, got, want)
		}
	}
}

func TestStandardInput(t *testing.T) {
	other := write(t, "2,file\n")
	got, r := readAll(t, Options{Stdin: strings.NewReader(packed(t, "1,stdin\n3,stdin\n"))}, other, "-")
	same(t, []string{"stdin@1", "file@2", "stdin@3"}, got)
	same(t, 3, r.Lines)
}

// TestInterruptEndsTheWait checks that after an interrupt the program no longer waits for a pipe or
// for standard input.
func TestInterruptEndsTheWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stdin, w := io.Pipe()
	defer w.Close()
	go func() {
		_, _ = io.WriteString(w, "1,alice\n2,bob\n") // the reader reads all of this before it waits for more
		cancel()
	}()
	r, err := Open(ctx, []string{"-"}, Options{Stdin: stdin})
	for err == nil {
		_, err = r.Next()
	}
	if !errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, io.EOF) {
		t.Errorf("%v, %v", err, ctx.Err())
	}
}

// TestLongestLine checks that a line of 1 MiB, not counting its newline, is read, and that a longer
// line is not.
func TestLongestLine(t *testing.T) {
	event := strings.Repeat("x", maxLine-len("1,"))
	got, r := readAll(t, Options{}, write(t, "1,"+event+"\r\n2,"+event+"y\n3,"+strings.Repeat(event, 3)+"\n4,alice\n5,"+event))
	if len(got) != 3 || got[1] != "alice@4" || got[2] != event+"@5" || r.Lines != 5 || r.Unreadable != 2 || !strings.HasSuffix(r.FirstUnreadable, "it is longer than 1 MiB") {
		t.Errorf("%d attempts, %d lines, %d unreadable: %s", len(got), r.Lines, r.Unreadable, r.FirstUnreadable)
	}
}

// TestLinesAddUp checks that every line counts as an attempt, as not an attempt, or as unreadable.
func TestLinesAddUp(t *testing.T) {
	file := write(t, "\nwhen,who\n1,alice\noops\n\n2,alice\n3,bob,none\n4,bob")
	_, r := readAll(t, Options{}, file)
	want := Stats{
		Lines: 8, NoAttempt: 3, Unreadable: 2, FirstUnreadable: "line 4 of " + file + ": fields between commas: 1; write time,event or time,event,units",
		Attempts: 3, From: time.Unix(1, 0).UTC(), To: time.Unix(4, 0).UTC(),
	}
	same(t, want, r.Stats)
}

// TestLogErrors checks that each error is a single sentence for the user.
func TestLogErrors(t *testing.T) {
	gz := packed(t, strings.Repeat("1,alice\n2,bob\n", 50_000))
	cut, cutEarly, damaged := write(t, gz[:len(gz)-100]), write(t, gz[:5]), write(t, gz[:len(gz)-8]+"\x00\x00\x00\x00"+gz[len(gz)-4:])
	directory := t.TempDir()
	for _, tt := range []struct{ name, want string }{
		{filepath.Join(directory, "no.log"), `there is no file "NAME"; name a log (slidegate help replay shows how to get one), or no file for the built-in sample`},
		{directory, `"NAME" is a directory; name the logs in it`},
		{cut, `"NAME" ends in the middle of its gzip data; copy it again, or replay the part that is there: gzip -dc FILE | slidegate replay -`},
		{cutEarly, `"NAME" ends in the middle of its gzip data; copy it again, or replay the part that is there: gzip -dc FILE | slidegate replay -`},
		{damaged, `"NAME" contains damaged gzip data (gzip: invalid checksum); copy it again`},
		{write(t, packed(t, gz)), `"NAME" has a compression that is not supported; unpack it, as in: gzip -dc FILE | slidegate replay -`},
		{write(t, "BZh91AY&SY"), `"NAME" has a compression that is not supported; unpack it, as in: bzip2 -dc FILE | slidegate replay -`},
		{write(t, "\x7fELF\x00"), `"NAME" is a binary file; name a log in plain text (UTF-8), or one compressed with gzip`},
		{write(t, ""), `nothing to replay: NAME is empty`},
		{write(t, packed(t, "")), `nothing to replay: NAME is empty`},
		{write(t, "\n \n\r\n"), "no attempt in 3 lines of NAME; in a syslog one is "},
		{write(t, "time,event\n"), "no attempt in 1 line of NAME"},
		{write(t, "-- No entries --\n"), "no attempt in 1 line of NAME"},
		{write(t, "Mar  4 05:06:07 h CRON[1]: hello\n"), "no attempt in 1 line of NAME"},
		{
			write(t, "Mar  4 05:06:07 h sshd[9]: Failed password for root from UNKNOWN port 1 ssh2\n"),
			`no attempt in 1 line of NAME; unreadable: 1, the first is line 1 of NAME: the attempt comes from "UNKNOWN", which is not an address`,
		},
		{
			write(t, "Once upon a time\n"), `"NAME" has an unknown format (slidegate help replay lists the known ones): its line 1 is "Once upon a time"; ` +
				`to read lines of any format, write --by 'from ([0-9a-f.:]+)' with a group around what to limit by, ` +
				`and, if their time is not found, --time-regex '^\[(.*?)\]' --time-format '02.01.2006 15:04:05'`,
		},
		{write(t, "day,who\n4.3.2025,alice\n"), `its line 2 is "4.3.2025,alice"; `},
		{write(t, strings.Repeat("hello\n", 100)+"1,alice\n"), `its line 1 is "hello"; `},
		{write(t, `{"when":1,"event":"alice"}`), `has no field "time"`},
		{write(t, strings.Repeat("x", 2*maxLine)), `"NAME" has an unknown format: its line 1 cannot be read: it is longer than 1 MiB; name a log with one line for each attempt`},
		{
			write(t, "Tue 2025-03-04 06:00:05 UTC h sshd[9]: Server listening on :: port 22.\n"),
			`"NAME" is a log of sshd, but in its line 1, "Tue 2025-03-04 06:00:05 UTC h sshd[9]: Server listening on :", the header before sshd has an unknown format; write the log with journalctl -u ssh -o short-iso`,
		},
	} {
		err := readError(t, tt.name)
		if want := strings.ReplaceAll(tt.want, "NAME", tt.name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if _, err := Open(t.Context(), []string{"-", cut, "-"}, Options{}); err == nil || err.Error() != `standard input is named twice; write "-" once` {
		t.Error(err)
	}
}

// readError returns the error with which reading a log ends.
func readError(tb testing.TB, name string) error {
	tb.Helper()
	r, err := Open(tb.Context(), []string{name}, Options{})
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		if _, err := r.Next(); err != nil {
			return err
		}
	}
}

// TestOptionsThatDoNotFit checks that options that a format does not support cause an error, rather
// than a log without attempts.
func TestOptionsThatDoNotFit(t *testing.T) {
	web := write(t, `192.0.2.1 - - [04/Mar/2025:06:06:07 +0100] "GET /a?b HTTP/1.1" 200 12`)
	sshd, columns := write(t, "Mar  4 05:06:07"+failed), write(t, "1,alice\n")
	for _, tt := range []struct{ name, by, timeField, want string }{
		{sshd, "path", "", `NAME has no field "path"; --by may be one of address, user there, or a regular expression with a group, as in "user=(\S+)"`},
		{columns, "address", "", `NAME has no field "address"; --by may be one of event there, or a regular expression with a group, as in "user=(\S+)"`},
		{web, "country", "", `NAME has no field "country"; --by may be one of address, user, path, agent there, or a regular expression with a group, as in "user=(\S+)"`},
		{web, "", "ts", `NAME has no named fields, so there is none named "ts"; leave out --time-field`},
	} {
		by := by(t, tt.by)
		_, err := Open(t.Context(), []string{tt.name}, Options{By: by, TimeField: tt.timeField})
		if want := strings.ReplaceAll(tt.want, "NAME", tt.name); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestByFields reads the same logs by different fields, networks and expressions.
func TestByFields(t *testing.T) {
	web := write(t, `2001:db8::1 - alice [04/Mar/2025:06:06:07 +0100] "POST /login?b HTTP/1.1" 200 12`+"\n"+
		`2001:db8::2 - - [04/Mar/2025:06:06:07 +0100] "GET /a?b HTTP/1.1" 200 12`+"\n")
	sshd := write(t, "Mar  4 05:06:07"+failed+"Mar  4 05:06:07 h dovecot: imap-login: Aborted login (auth failed): user=<bob>, rip=192.0.2.9, lip=192.0.2.1\n"+
		"Mar  4 05:06:07 h sshd[1]: message repeated 2 times: [ Failed password for invalid user carol from ::ffff:192.0.2.1 port 22 ssh2]\n")
	for _, tt := range []struct {
		name, by string
		want     []string
		repeats  int
	}{
		{web, "", []string{"2001:db8::1", "2001:db8::2"}, 0},
		{web, "ip/64", []string{"2001:db8::/64", "2001:db8::/64"}, 0},
		{web, "user", []string{"alice"}, 0},
		{web, "path", []string{"/login", "/a"}, 0},
		{web, `^(\S+) .*\] "POST /login`, []string{"2001:db8::1"}, 0},
		{sshd, "", []string{"192.0.2.1", "192.0.2.1"}, 1},
		{sshd, "user", []string{"root", "carol"}, 1},
		{sshd, `rip=([0-9a-f.:]+)`, []string{"192.0.2.9"}, 0},
		{sshd, `(?:rip=|from )([0-9a-f.:]+)`, []string{"192.0.2.1", "192.0.2.9", "::ffff:192.0.2.1"}, 1},
	} {
		by := by(t, tt.by)
		got, r := readAll(t, Options{By: by}, tt.name)
		for i, s := range got {
			got[i] = s[:strings.LastIndex(s, "@")]
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || r.Attempts != len(tt.want)+tt.repeats {
			t.Errorf("--by %s: %d attempts, %s", tt.by, r.Attempts, diff)
		}
	}
}

// TestResults checks that the results in an sshd log are counted, and that other logs have none.
func TestResults(t *testing.T) {
	_, r := readAll(t, Options{}, write(t, "Mar  4 05:06:07"+failed+"Mar  4 05:06:08 h sshd[1]: Accepted password for alice from 192.0.2.1 port 22 ssh2\n"))
	if r.WithResult != 2 || r.Succeeded != 1 || r.Yearless != 2 {
		t.Errorf("%+v", r.Stats)
	}
	if _, r := readAll(t, Options{}, write(t, "1,alice\n")); r.WithResult != 0 {
		t.Errorf("%+v", r.Stats)
	}
}
