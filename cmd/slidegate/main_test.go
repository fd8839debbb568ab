package main

import (
	"encoding/json"
	"fmt"
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
	logins := write(t, loginNotes())
	for name, args := range map[string][]string{
		"login":        {"replay", "--login"},
		"login-json":   {"replay", "--login", "--json"},
		"login-notes":  {"replay", "--login", logins},
		"sample":       {"replay"},
		"sample-json":  {"replay", "--json"},
		"notes":        {"replay", "--limit", "5/1h", notes},
		"notes-json":   {"replay", "--json", "--limit", "5/1h", notes},
		"help":         {"help"},
		"replay-help":  {"replay", "--help"},
		"inspect-help": {"inspect", "--help"},
		"reset-help":   {"reset", "--help"},
	} {
		stdout, stderr, status := command(t.Context(), args...)
		if status != 0 || stderr != "" {
			t.Errorf("%s: status %d, %s", name, status, stderr)
		}
		checkGolden(t, filepath.Join("testdata", name+".golden"), strings.NewReplacer(notes, "FILE", logins, "FILE").Replace(stdout))
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

// TestBadInput: one sentence, and a status that is not zero. What is wrong with files is tested where they are read.
func TestBadInput(t *testing.T) {
	empty, broken, columns := write(t, ""), write(t, "1,alice\nMar\n"), write(t, "1,alice\n")
	for _, tt := range []struct{ args, want string }{
		{"nope", "unexpected argument nope; slidegate help shows what there is"},
		{"replay --nope", "unknown flag --nope; slidegate help shows what there is"},
		{"replay -j", "unknown flag -j; slidegate help shows what there is"},
		{"replay -limit 5/1h", "unknown flag -l; flags begin with two dashes, as in --limit; slidegate help shows what there is"},
		{"replay --by user --by address", "--by: it is given twice; choose one"},
		{"replay --by POST_/login", `--by: "POST_/login" is no field; write one as in user, or address/64, or a regular expression with a group around the event, as in rip=([0-9a-f.:]+)`},
		{"replay --jsn", `unknown flag --jsn, did you mean "--json"?`},
		{"replay --json=maybe", "--json takes no value; leave out the = and what follows"},
		{"replay --limit", "--limit: its value is missing; write one, as in 5/1h"},
		{"replay --redis --json", "--redis: its value is missing; write one, as in 127.0.0.1:6379"},
		{"replay --limit=", `--limit: limit "": has no slash; write units per time, as in 5/1h`},
		{"replay --limit 5", `--limit: limit "5": has no slash; write units per time, as in 5/1h`},
		{"replay --limit 5/h,0/d", `--limit: limit "0/d": `},
		{"replay --limit -1/1h", `--limit: limit "-1/1h": a Max of -1; choose 1 to 2^53 units`},
		{"replay --limit 5/h --limit 1/5s,6/60m", `--limit: 5/1h and 6/60m have the same window; keep the tighter one`},
		{"replay --limit " + manyLimits(32), `--limit: 1/32s is the limit number 32; a limiter has at most 31`},
		{"replay --compare", "--compare: its value is missing; write one, as in 3/10m,20/1d"},
		{"replay --compare 5/1h,6/60m", `--compare: 5/1h and 6/60m have the same window; keep the tighter one`},
		{"replay --compare 5/1h --limit 5/1h", `--limit and --compare do not go together; write the limits of --limit as one more --compare`},
		{"replay --by", "--by: its value is missing; write one, as in user"},
		{"replay --by=", `--by: "" names no field; write one as in user, or address/64`},
		{"replay --by ip/129", `--by: "ip/129" has no number from 1 to 128 after the slash; write ip/64`},
		{"replay --by [(", `--by: "[(" is no regular expression: missing closing ]`},
		{"replay --by path", `the sample has no field "path"; --by may be one of address, user there, or a regular expression`},
		{"replay --by (nobody)", `no attempt in 326 lines of the sample: none matches "(nobody)"`},
		{"replay --by user " + columns, columns + ` has no field "user"; --by may be one of event there`},
		{"replay --time-field ts", `the sample does not hold JSON lines, and so has no field "ts"; leave out --time-field`},
		{"replay --svg", "--svg: its value is missing; write one, or leave out the flag"},
		{"replay --svg --json", "--svg: its value is missing; write one, or leave out the flag"},
		{"replay --svg -", "--svg: the standard output is for the report; name a file"},
		{"replay --svg=", "--svg: its value is empty; write one, or leave it out"},
		{"replay --time-field=", "--time-field: its value is empty; write one, or leave it out"},
		{"replay --svg " + t.TempDir(), "(is a directory); name a file in a directory of yours"},
		{"replay --svg no/such/directory/x.svg", `--svg: cannot write "no/such/directory/x.svg" (no such file or directory); name a file in a directory of yours`},
		{"replay --redis=", `--redis: "" is no address of a Redis; write host:port, as in 127.0.0.1:6379`},
		{"replay --redis localhost", `--redis: "localhost" is no address of a Redis; write host:port, as in 127.0.0.1:6379`},
		{"replay --redis http://secret@localhost:6379", `--redis: its URL cannot be read; write one alone, as in rediss://user:password@host:6379`},
		{"replay --redis localhost:6379,redis://:secret@localhost:6379", `--redis: its URL cannot be read; write one alone, as in rediss://user:password@host:6379`},
		{"replay --redis 127.0.0.1:1", "--redis 127.0.0.1:1: no Redis and no cluster answers there (dial tcp 127.0.0.1:1: connect: connection refused); correct it, or leave out --redis to decide in memory"},
		{"replay --login --limit 5/1h", "--login and --limit do not go together: the login guard has limits of its own; leave out one of them"},
		{"replay --login --compare 5/1h", "--login and --compare do not go together: the login guard has limits of its own; leave out one of them"},
		{"replay --login --estimator window", "--login and --estimator do not go together: the login guard counts by windows; leave out one of them"},
		{"replay --login --by user", "--login and --by do not go together: the login guard counts by address, by account, and by both; leave out one of them"},
		{"replay --login --svg x.svg", "--login and --svg do not go together: it draws no picture; leave out one of them"},
		{"replay --login --redis 127.0.0.1:1", "--login and --redis do not go together: it decides in memory, with the answers that Redis would give; leave out one of them"},
		{"replay --login " + columns, columns + " is no log of sshd, and so does not tell the address, the account and the result of each login; name a log of sshd, or leave out --login"},
		{"replay --login --time-field ts", `the sample does not hold JSON lines, and so has no field "ts"; leave out --time-field`},
		{"replay --login " + empty, "nothing to replay: " + empty + " is empty"},
		{"inspect", `expected "<name> <event>"; slidegate help shows what there is`},
		{"inspect login", `expected "<event>"; slidegate help shows what there is`},
		{"inspect login alice bob", `unexpected argument bob; slidegate help shows what there is`},
		{"inspect login e --redis 127.0.0.1:1", "--redis 127.0.0.1:1: no Redis and no cluster answers there (dial tcp 127.0.0.1:1: connect: connection refused); correct it\n"},
		{"inspect login e --redis localhost", `--redis: "localhost" is no address of a Redis; write host:port, as in 127.0.0.1:6379`},
		{"inspect login e --redis redis://:secret@127.0.0.1:1", "--redis 127.0.0.1:1: no Redis and no cluster answers there"},
		{"inspect lo/gin e --redis " + redistest.Addr(t), `limiter name "lo/gin" has the byte "/"; use only A-Z a-z 0-9 . _ - and colon`},
		{"inspect login e --limit 5/h,6/60m", `--limit: 5/1h and 6/60m have the same window; keep the tighter one`},
		{"inspect login e --every", "--every: its value is missing; write one, as in 5s"},
		{"inspect login e --every 5", `--every: "5" is no time between two looks; write one of at least 100ms, as in 5s`},
		{"inspect login e --every 5ms", `--every: "5ms" is no time between two looks; write one of at least 100ms, as in 5s`},
		{"inspect login e --secret-file", "--secret-file: its value is missing; write one, or leave out the flag"},
		{"inspect login e --secret-file no-such", `--secret-file: cannot read "no-such" (no such file or directory); name the file that holds the secret`},
		{"inspect login e --secret-file " + empty, `--secret-file: "` + empty + `" is empty; name the file that holds the secret`},
		{"reset login e", "nothing is forgotten: reset asks first, and the standard input is no terminal; add --yes to forget without a question"},
		{"reset login e --yes --redis 127.0.0.1:1", "--redis 127.0.0.1:1: no Redis and no cluster answers there"},
		{"replay no-such.log", `there is no file "no-such.log"; name a log (slidegate help replay tells how to get one), or none for the built-in sample`},
		{"replay " + empty + " no-such.log", `there is no file "no-such.log"; name a log (slidegate help replay tells how to get one), or none for the built-in sample`},
		{"replay .", `"." is a directory; name the logs in it`},
		{"replay -", "nothing to replay: standard input is empty"},
		{"replay " + empty, "nothing to replay: " + empty + " is empty"},
	} {
		stdout, stderr, status := command(t.Context(), strings.Fields(tt.args)...)
		if status != 1 || stdout != "" || !strings.HasPrefix(stderr, "slidegate: ") || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tt.want) || strings.Contains(stderr, "secret@") {
			t.Errorf("slidegate %s: status %d\n got %s%s\nwant %s", tt.args, status, stdout, stderr, tt.want)
		}
	}
	for _, nobody := range [][]string{{"inspect", "login", ""}, {"inspect", "", "alice"}, {"reset", "--yes", "login", ""}} {
		if _, stderr, status := command(t.Context(), nobody...); status != 1 || !strings.HasSuffix(stderr, ">: it is empty; write the one that the service uses\n") {
			t.Errorf("%q: status %d, %s", nobody, status, stderr)
		}
	}
	if _, stderr, status := command(t.Context(), "replay", broken); status != 0 {
		t.Errorf("one broken line: status %d, %s", status, stderr)
	}
}

func manyLimits(n int) string {
	var s []string
	for i := range n {
		s = append(s, fmt.Sprintf("1/%ds", i+1))
	}
	return strings.Join(s, ",")
}

// TestProgram builds the program and runs it.
func TestProgram(t *testing.T) {
	program := build(t)
	out, err := exec.Command(program, "replay", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var p report
	if err := json.Unmarshal(out, &p); err != nil || !p.Sample || p.Attempts == 0 || p.Sets[0].Admitted+p.Sets[0].Denied != p.Attempts {
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
