package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestGolden holds what the program prints to the files in testdata. To rewrite them: go test ./cmd/slidegate -update.
func TestGolden(t *testing.T) {
	t.Setenv("COLUMNS", "") // else the help is as wide as the terminal
	notes := write(t, "time,event,units\n"+
		"2025-03-04T05:06:07Z,\"alice\x1b[2J, \"\"the\"\" editor\",3\n2025-03-04T05:06:08Z,\"alice\x1b[2J, \"\"the\"\" editor\",3\n"+
		"2025-03-04T06:06:07+01:00,bob\nyesterday,bob\n2025-03-04T05:06:09.5Z,bob,6\n2025-03-04T05:06:10Z,"+strings.Repeat("ab", 99)+",6\n")
	for name, args := range map[string][]string{
		"sample":      {"replay"},
		"sample-json": {"replay", "--json"},
		"notes":       {"replay", "--limit", "5/1h", notes},
		"notes-json":  {"replay", "--json", "--limit", "5/1h", notes},
		"help":        {"help"},
		"replay-help": {"replay", "--help"},
	} {
		stdout, stderr, status := command(t.Context(), args...)
		if status != 0 || stderr != "" {
			t.Errorf("%s: status %d, %s", name, status, stderr)
		}
		checkGolden(t, filepath.Join("testdata", name+".golden"), strings.ReplaceAll(stdout, notes, "FILE"))
	}
}

func checkGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func TestHelpHasThreeNames(t *testing.T) {
	for short, long := range map[string]string{"": "--help", "help": "--help", "help replay": "replay --help", "replay -h": "replay --help"} {
		a, _, _ := command(t.Context(), strings.Fields(short)...)
		b, _, _ := command(t.Context(), strings.Fields(long)...)
		if a != b || a == "" {
			t.Errorf("slidegate %s and slidegate %s differ", short, long)
		}
	}
}

// TestBadInput: one sentence, and a status that is not zero.
func TestBadInput(t *testing.T) {
	empty := write(t, "")
	blank := write(t, "\n \n\r\n")
	quiet := write(t, "Mar  4 05:06:07 h CRON[1]: hello\n")
	unreadable := write(t, "1,alice,none\n1,\n2,,\n")
	broken := write(t, "1,alice\nMar\n")
	noAttempt := write(t, "Mar  4 05:06:07 h sshd[9]: Failed password for root from UNKNOWN port 1 ssh2\n")
	prose := write(t, "Once upon a time\n")
	dates := write(t, "day,who\n4.3.2025,alice\n")
	header := write(t, "time,event\n")
	tooLate := write(t, strings.Repeat("hello\n", 100)+"1,alice\n")
	binary := write(t, "\x7fELF\x00\x00")
	gz, xz := write(t, "\x1f\x8b\x08"), write(t, "\xfd7zXZ\x00\x00")
	bz2, zst, zip := write(t, "BZh91AY&SY"), write(t, "\x28\xb5\x2f\xfd\x24"), write(t, "PK\x03\x04\x14")
	journal := write(t, "-- No entries --\n")
	shortFull := write(t, "-- Boot 5c1a --\nTue 2025-03-04 06:00:05 UTC h systemd[1]: hello\nTue 2025-03-04 06:00:05 UTC h sshd[9]: Server listening on :: port 22.\n")
	for _, tt := range []struct{ args, want string }{
		{"nope", "unexpected argument nope; slidegate help shows what there is"},
		{"replay --nope", "unknown flag --nope; slidegate help shows what there is"},
		{"replay -j", "unknown flag -j; slidegate help shows what there is"},
		{"replay --jsn", `unknown flag --jsn, did you mean "--json"?`},
		{"replay --json=maybe", "--json takes no value; leave out the = and what follows"},
		{"replay --limit", "--limit: its value is missing; write one, as in 5/1h"},
		{"replay --redis --json", "--redis: its value is missing; write one, as in 127.0.0.1:6379"},
		{"replay --limit=", `--limit: limit "": has no slash; write units per time, as in 5/1h`},
		{"replay --limit 5", `--limit: limit "5": has no slash; write units per time, as in 5/1h`},
		{"replay --limit 5/h,0/d", `--limit: limit "0/d": `},
		{"replay --limit -1/1h", `--limit: limit "-1/1h": a Max of -1; choose 1 to 2^53 units`},
		{"replay --limit 5/h --limit 1/5s,6/60m", `--limit: 5/1h and 6/60m have the same window; keep the tighter one`},
		{"replay --redis=", `--redis: "" is no address of a Redis; write host:port, as in 127.0.0.1:6379`},
		{"replay --redis localhost", `--redis: "localhost" is no address of a Redis; write host:port, as in 127.0.0.1:6379`},
		{"replay --redis 127.0.0.1:1", "--redis 127.0.0.1:1 does not answer as a Redis or one cluster (dial tcp 127.0.0.1:1: connect: connection refused); correct it, or leave out --redis to decide in memory"},
		{"replay no-such.log", `there is no file "no-such.log"; name a log (slidegate help replay tells how to get one), or none for the built-in sample`},
		{"replay " + quiet + " no-such.log", `there is no file "no-such.log"; name a log (slidegate help replay tells how to get one), or none for the built-in sample`},
		{"replay -", `standard input cannot be read as "-" yet; name a file, or /dev/stdin`},
		{"replay .", `"." is a directory; name the logs in it`},
		{"replay " + empty, "nothing to replay: " + empty + " is empty"},
		{"replay " + blank, "no attempt in 3 lines of " + blank + "; one is "},
		{"replay " + binary, `"` + binary + `" is a binary file; name a log in plain text (UTF-8)`},
		{"replay " + gz, `"` + gz + `" is compressed; unpack it first, with gzip -dk`},
		{"replay " + xz, `"` + xz + `" is compressed; unpack it first, with xz -dk`},
		{"replay " + bz2, `"` + bz2 + `" is compressed; unpack it first, with bzip2 -dk`},
		{"replay " + zst, `"` + zst + `" is compressed; unpack it first, with zstd -d`},
		{"replay " + zip, `"` + zip + `" is compressed; unpack it first, with unzip`},
		{"replay " + journal, "no attempt in 1 line of " + journal + "; one is "},
		{"replay " + shortFull, `"` + shortFull + `" is a log of sshd, but in its line 3, "Tue 2025-03-04 06:00:05 UTC h sshd[9]: Server listening on :", ` +
			"what stands before sshd is of an unknown form; write the log with journalctl -u ssh -o short-iso"},
		{"replay " + prose, `"` + prose + `" is no log of sshd, and its line 1, "Once upon a time", is not time,event: fields between commas: 1; write time,event or time,event,units`},
		{"replay " + dates, `"` + dates + `" is no log of sshd, and its line 2, "4.3.2025,alice", is not time,event: "4.3.2025" is no time; write 2025-03-04T05:06:07Z or seconds since 1970`},
		{"replay " + unreadable, `"` + unreadable + `" is no log of sshd, and its line 1, "1,alice,none", is not time,event: "none" is no number of units; write 1 or more`},
		{"replay " + tooLate, `"` + tooLate + `" is no log of sshd, and its line 1, "hello", is not time,event: fields between commas: 1; write time,event or time,event,units`},
		{"replay " + header, "no attempt in 1 line of " + header},
		{"replay " + quiet, `no attempt in 1 line of ` + quiet + `; one is "Failed password for root from 192.0.2.1 port 22 ssh2", written by sshd, or a line time,event`},
		{"replay " + noAttempt, `no attempt in 1 line of ` + noAttempt + `; unreadable: 1, the first is line 1 of ` + noAttempt + `: the attempt comes from "UNKNOWN", which is no address`},
	} {
		stdout, stderr, status := command(t.Context(), strings.Fields(tt.args)...)
		if status != 1 || stdout != "" || !strings.HasPrefix(stderr, "slidegate: ") || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tt.want) {
			t.Errorf("slidegate %s: status %d\n got %s%s\nwant %s", tt.args, status, stdout, stderr, tt.want)
		}
	}
	if _, stderr, status := command(t.Context(), "replay", broken); status != 0 {
		t.Errorf("one broken line: status %d, %s", status, stderr)
	}
}

// TestProgram builds the program and runs it.
func TestProgram(t *testing.T) {
	program := build(t)
	out, err := exec.Command(program, "replay", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var p report
	if err := json.Unmarshal(out, &p); err != nil || !p.Sample || p.Attempts == 0 || p.Admitted+p.Denied != p.Attempts {
		t.Errorf("%v: %s", err, out)
	}
	failed := exec.Command(program, "replay", "no-such.log")
	if out, err := failed.CombinedOutput(); err == nil || failed.ProcessState.ExitCode() != 1 || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v: %s", err, out)
	}
}

func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "slidegate.exe")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}
