package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/replay"
	"github.com/slidegate/slidegate/internal/test/redistest"
)

var update = flag.Bool("update", false, "rewrite the files in testdata and the pictures of docs")

// asProgram is the environment variable that makes this test binary run as slidegate. A test that
// needs a separate process runs the binary again instead of building the program.
const asProgram = "SLIDEGATE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	if err := os.Setenv(asProgram, "1"); err != nil { // for processes started by the tests
		panic(err)
	}
	http.DefaultClient.Timeout = time.Minute // so that a hang fails here
	redistest.MainParallel(m)
}

// TestGolden compares the program's output with the files in testdata. To rewrite them: go test
// ./cmd/slidegate -update.
func TestGolden(t *testing.T) {
	t.Setenv("COLUMNS", "") // otherwise help texts would be as wide as the terminal
	notes := write(t, "time,event,units\n"+
		"2025-03-04T05:06:07Z,\"alice\x1b[2J, \"\"the\"\" editor\",3\n2025-03-04T05:06:08Z,\"alice\x1b[2J, \"\"the\"\" editor\",3\n"+
		"2025-03-04T06:06:07+01:00,bob\nyesterday,bob\n2025-03-04T05:06:09.5Z,bob,6\n2025-03-04T05:06:10Z,"+strings.Repeat("ab", 99)+",6\n")
	logins := write(t, loginNotes())
	for name, args := range map[string][]string{
		"login":          {"replay", "--login"},
		"login-json":     {"replay", "--login", "--json"},
		"login-notes":    {"replay", "--login", logins},
		"sample":         {"replay"},
		"sample-json":    {"replay", "--json"},
		"notes":          {"replay", "--limit", "5/1h", notes},
		"notes-json":     {"replay", "--json", "--limit", "5/1h", notes},
		"help":           {"help"},
		"replay-help":    {"replay", "--help"},
		"inspect-help":   {"inspect", "--help"},
		"top-help":       {"top", "--help"},
		"reset-help":     {"reset", "--help"},
		"override-help":  {"override", "--help"},
		"overrides-help": {"overrides", "--help"},
		"proxy-help":     {"proxy", "--help"},
	} {
		stdout, stderr, status := command(t.Context(), args...)
		if status != 0 || stderr != "" {
			t.Errorf("%s: status %d, %s", name, status, stderr)
		}
		checkGolden(t, filepath.Join("testdata", name+".golden"), strings.NewReplacer(notes, "FILE", logins, "FILE").Replace(stdout))
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

// TestVersion checks that version and --version print the same.
func TestVersion(t *testing.T) {
	short, _, _ := command(t.Context(), "version")
	long, stderr, status := command(t.Context(), "--version")
	if short != long || !strings.HasPrefix(long, "slidegate ") || stderr != "" || status != 0 {
		t.Errorf("slidegate version prints %q, and --version %q %q, status %d", short, long, stderr, status)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	var errs strings.Builder
	if status := run(t.Context(), []string{"version"}, cli.Streams{Out: full, Err: &errs}); err == nil && status != 1 {
		t.Errorf("nothing can be written: status %d, %s", status, errs.String())
	}
}

// nextSentence matches the start of a second sentence.
var nextSentence = regexp.MustCompile(`[.!] +[A-Z]`)

// TestBadInput makes mistakes with each command. It checks that each mistake causes a single
// sentence on standard error, and exit status 1. Mistakes in the lines of a file are tested in
// package logs.
func TestBadInput(t *testing.T) {
	taken := busy(t)
	empty, broken, columns := write(t, ""), write(t, "1,alice\nMar\n"), write(t, "1,alice\n")
	for _, tt := range []struct{ args, want string }{
		{"nothing", "unexpected argument nothing; --help shows what there is"},
		{"replay --nope", "unknown flag --nope; --help shows what there is"},
		{"replay -j", "unknown flag -j; --help shows what there is"},
		{"replay -limit 5/1h", "unknown flag -l; --help shows what there is"},
		{"--nope replay", "unknown flag --nope; --help shows what there is"},
		{"replay --by user --by address", "--by: it is given twice; choose one"},
		{"replay --by POST_/login", `--by: "POST_/login" is not a field; write one, as in user, or address/64, or a regular expression with a group around the event, as in rip=([0-9a-f.:]+)`},
		{"replay --jsn", `unknown flag --jsn, did you mean "--json"?`},
		{"replay --json=maybe", `--json: bool value must be true, 1, yes, false, 0 or no but got "maybe"`},
		{"replay --limit", "--limit: its value is missing; write one, as in 5/1h"},
		{"replay --redis --json", "--redis: its value is missing; write one, as in 127.0.0.1:6379"},
		{"replay --limit=", `--limit: limit "": has no slash; write units per time, as in 5/1h`},
		{"replay --limit 5", `--limit: limit "5": has no slash; write units per time, as in 5/1h`},
		{"replay --limit 5/h,0/d", `--limit: limit "0/d": `},
		{"replay --limit -1/1h", `--limit: limit "-1/1h": a Max of -1; choose 1 to 2^53 units`},
		{"replay --limit 5/h --limit 1/5s,6/60m", `--limit: 5/1h and 6/60m have the same window; keep the tighter one`},
		{"replay --limit " + manyLimits(32), `--limit: 1/32s is limit number 32; a limiter has at most 31`},
		{"replay --compare", "--compare: its value is missing; write one, as in 3/10m,20/1d"},
		{"replay --compare 5/1h,6/60m", `--compare: 5/1h and 6/60m have the same window; keep the tighter one`},
		{"replay --compare 5/1h --limit 5/1h", `--limit and --compare cannot be combined; write the limits of --limit as one more --compare`},
		{"replay --by", "--by: its value is missing; write one, as in user"},
		{"replay --by=", `--by: "" is not a field; write one, as in user, or address/64`},
		{"replay --by ip/129", `--by: "ip/129" has no number from 1 to 128 after the slash; write ip/64`},
		{"replay --by [(", "--by: '[(' is not a regular expression: missing closing ]"},
		{"replay --by path", `the sample has no field "path"; --by may be one of address, user there, or a regular expression`},
		{"replay --by (nobody)", `no attempt in 326 lines of the sample: none matches '(nobody)'`},
		{"replay --by user " + columns, columns + ` has no field "user"; --by may be one of event there`},
		{"replay --time-field ts", `the sample has no named fields, so there is none named "ts"; leave out --time-field`},
		{"replay --time-regex at=x", "--time-regex: 'at=x' has 0 capturing groups; write one group around the time, as in ^\\[(.*?)\\], and others as (?:a|b)"},
		{"replay --time-regex (\\d", "--time-regex: '(\\d' is not a regular expression: missing closing )"},
		{"replay --time-regex (a) --time-regex (b)", "--time-regex: it is given twice; choose one"},
		{"replay --time-regex=", "--time-regex: its value is empty; write one, or leave it out"},
		{"replay --time-regex ^(.{15})", "the sample: its lines have no fields, so --by has to be a regular expression with a group, as in rip=([0-9a-f.:]+)"},
		{"replay --time-format 2006", "the sample has times in a known format; leave out --time-format, or add --time-regex"},
		{"replay --picture", "--picture: its value is missing; write one, or leave out the flag"},
		{"replay --picture --json", "--picture: its value is missing; write one, or leave out the flag"},
		{"replay --picture -", `--picture: "-" does not end in .svg; name a file that does`},
		{"replay --picture=", "--picture: its value is empty; write one, or leave it out"},
		{"replay --picture no/x.svg --picture no/y.svg", "--picture: it is given twice; choose one"},
		{"replay --picture x.svg" + strings.Repeat(" --compare 5/1h", 101), "--picture: it shows at most 100 sets of limits; leave out some of --compare"},
		{"replay --picture limits.pdf", `--picture: "limits.pdf" does not end in .svg; name a file that does`},
		{"replay --picture " + picturesIn(t), "is not a regular file; name another file"},
		{"replay --picture no/such/directory/x.svg", `--picture: cannot write "no/such/directory/x.svg" (no such file or directory); name a file in a directory of yours`},
		{"replay --redis=", `--redis: "" is not the address of a Redis server; write host:port, as in 127.0.0.1:6379`},
		{"replay --redis localhost", `--redis: "localhost" is not the address of a Redis server; write host:port, as in 127.0.0.1:6379`},
		{"replay --redis http://secret@localhost:6379", `--redis: the Redis URL does not start with redis://, rediss:// (for TLS) or unix://; write one as in redis://127.0.0.1:6379`},
		{"replay --redis localhost:6379,redis://:secret@localhost:6379", `--redis: other addresses precede its URL; write only the URL, as in rediss://user:password@host:6379`},
		{"replay --redis 127.0.0.1:1", "--redis 127.0.0.1:1: no Redis server or cluster answers there (dial tcp 127.0.0.1:1: connect: connection refused); start it, or correct the address, or leave out --redis to decide in memory"},
		{"replay --login --limit 5/1h", "--login and --limit cannot be combined: the login guard has its own limits; leave out one of them"},
		{"replay --login --compare 5/1h", "--login and --compare cannot be combined: the login guard has its own limits; leave out one of them"},
		{"replay --login --estimator window", "--login and --estimator cannot be combined: the login guard counts by windows; leave out one of them"},
		{"replay --login --by user", "--login and --by cannot be combined: the login guard counts by address, by account, and by both; leave out one of them"},
		{"replay --login --redis 127.0.0.1:1", "--login and --redis cannot be combined: it decides in memory, with the same result as on Redis; leave out one of them"},
		{"replay --login " + columns, columns + " is not a log of sshd, so it lacks the address, the account or the result of each login; name a log of sshd, or leave out --login"},
		{"replay --login --time-field ts", `the sample has no named fields, so there is none named "ts"; leave out --time-field`},
		{"replay --login " + empty, "nothing to replay: " + empty + " is empty"},
		{"inspect", `expected "<name> <event>"; --help shows what there is`},
		{"inspect login", `expected "<event>"; --help shows what there is`},
		{"overrides n u:secret@h:6379", `unexpected argument ***@h:6379; --help shows what there is`},
		{"inspect login e --redis 127.0.0.1:1", "--redis 127.0.0.1:1: no Redis server or cluster answers there (dial tcp 127.0.0.1:1: connect: connection refused); start it, or correct the address\n"},
		{"inspect login e redis://u:p@h:1", "unexpected argument redis://***@h:1; "},
		{"inspect login e --redis redis://:secret@127.0.0.1:1", "--redis 127.0.0.1:1: no Redis server or cluster answers there"},
		{"inspect lo/gin e --redis 127.0.0.1:1", `limiter name "lo/gin" has the byte "/"; use only A-Z a-z 0-9 . _ - and colon`},
		{"inspect login e --secret-file " + broken + " --secret-file " + broken, "--secret-file: it is given twice; choose one"},
		{"inspect login e --secret-file", "--secret-file: its value is missing; write one, or leave out the flag"},
		{"inspect login e --secret-file no/such", `--secret-file: cannot read "no/such" (no such file or directory); name the file that holds the secret`},
		{"inspect login e --secret-file " + empty, `--secret-file: "` + empty + `" is empty; name the file that holds the secret`},
		{"inspect login e --secret-file /dev/zero", `--secret-file: "/dev/zero" holds more than 1 MiB; name the file that holds the secret`},
		{"inspect login e --budget account=5/1h", "--budget applies only to a login guard; add --login, or write --limit"},
		{"inspect login e --login", "--login needs --secret-file, because a login guard hides accounts in its keys; name the file that holds its Secret"},
		{"inspect login e --login --limit 5/1h", "--login and --limit cannot be combined: a login guard has limits for each budget; write --budget account=10/10m,20/1h"},
		{"inspect login e --login --ar1", "--login and --ar1 cannot be combined: a login guard counts by windows; leave out one of them"},
		{"inspect login e --ar1 --pace", "--ar1 and --pace cannot be combined: a limiter is from one package; leave out one of them"},
		{"inspect login e --ar1 --inflight", "--ar1 and --inflight cannot be combined: a limiter is from one package; leave out one of them"},
		{"inspect login e --login --inflight", "--login and --inflight cannot be combined: a login guard counts by windows; leave out one of them"},
		{"inspect login e --inflight --limit 5/1h", `--limit: "5/1h" is not the Max of a limiter of package inflight; write a number of units, as in 5`},
		{"inspect login e --limit 5", `--limit: limit "5": has no slash; write units per time, as in 5/1h`},
		{"inspect login e 1.2.3 --login --secret-file " + broken, `"1.2.3" is not an IP address; write one, as in 198.51.100.7 or 2001:db8::7`},
		{"inspect login e --login --budget", "--budget: its value is missing; write one, as in account=10/10m,20/1h"},
		{"inspect login e --login --budget device=5/1h", `--budget: "device=5/1h" is not a budget; write one of [account address pair streak total challenged-account challenged-address challenged-pair challenged-streak] with its limits, as in account=10/10m,20/1h`},
		{"inspect login e --login --budget account=5", `--budget: limit "5": has no slash; write units per time, as in 5/1h`},
		{"inspect login e --login --budget pair=5/1h --budget pair=5/1m", "--budget: the budget pair is given twice; write its limits in one flag, as in pair=10/10m,20/1h"},
		{"inspect login e --challenged", "--challenged applies only to a login guard; add --login"},
		{"inspect login e --login --budget challenged-account=5/1h --secret-file " + broken, "--budget challenged-account applies only to challenged attempts; add --challenged"},
		{"inspect login e --login --redis " + redistest.Addr(t) + " --secret-file " + columns, "has a Secret of 7 bytes; give it at least 16 random ones"},
		{"inspect login e --allow-reset", "--allow-reset applies only to the page; add --web, or use slidegate reset"},
		{"inspect login e --web --json", "--web and --json cannot be combined: the page has no JSON; leave out one of them"},
		{"inspect login e --web --web", "--web: it is given twice; choose one"},
		{"inspect --web=localhost login e", `--web: "localhost" is not an address to serve at; write an IP address and a port, as in 127.0.0.1:8002`},
		{"inspect --web " + taken + " login e --redis " + redistest.Addr(t), "--web: listen tcp " + taken + ": bind: address already in use; write an address of this machine with a free port, as in 127.0.0.1:8002"},
		{"override api", `expected "<event>"; --help shows what there is`},
		{"override api e", "it does not say what to do; write --limit 100/1m, --block, --unlimited or --end"},
		{"override api e --limit 100", `--limit: limit "100": has no slash; write units per time, as in 5/1h`},
		{"override api e --limit 100/1m@5s --for 1h --why x", "--limit: 100/1m@5s has a resolution, which an override does not support; leave out the @"},
		{"override api e --block --limit 5/1h --for 1h --why x", "--limit and --block cannot be combined: an override does one thing; leave out one of them"},
		{"override api e --block --unlimited", "--block and --unlimited cannot be combined: "},
		{"override api e --end --block", "--block and --end cannot be combined: "},
		{"override api e --end --for 1h", "--end takes effect at once, and stores nothing; leave out --for and --why"},
		{"override api e --block --why x", "it does not say for how long; write --for 24h"},
		{"override api e --block --for 1h", `it does not say why; write --why "ticket 4711", for anyone who finds the override later`},
		{"override api e --block --for 0 --why x", `--for: "0" is not a time from 1s to 366d; write one, as in 24h or 7d`},
		{"override api e --block --for 367d --why x", `--for: "367d" is not a time from 1s to 366d`},
		{"override api e --block --for 1h@1m --why x", `--for: "1h@1m" is not a time from 1s to 366d`},
		{"override api e --block --for soon --why x", `--for: "soon" is not a time from 1s to 366d`},
		{"override api e --block --for 1h --for 2h", "--for: it is given twice; choose one"},
		{"override api e --block --for", "--for: its value is missing; write one, as in 24h"},
		{"override api e --block --for 1h --why=", `--why: its value is empty; write a reason, as in "ticket 4711"`},
		{"override api e --block --for 1h --why", `--why: its value is missing; write a reason, as in "ticket 4711"`},
		{"override api e --block --for 1h --why " + strings.Repeat("x", 201), "--why: it has more than 200 bytes; write a shorter text, and a link to the rest"},
		{"override api e --block --for 1h --why x --by " + strings.Repeat("x", 65), "--by: it has more than 64 bytes; write a shorter name"},
		{"override lo/gin e --block --for 1h --why x", `limiter name "lo/gin" has the byte "/"; use only A-Z a-z 0-9 . _ - and colon`},
		{"override api e --block --for 1h --why x --redis 127.0.0.1:1", "--redis 127.0.0.1:1: no Redis server or cluster answers there"},
		{"overrides", `expected "<name>"; --help shows what there is`},
		{"overrides api --redis 127.0.0.1:1", "--redis 127.0.0.1:1: no Redis server or cluster answers there"},
		{"reset", `expected "<name> <event>"; --help shows what there is`},
		{"reset login", `expected "<event>"; --help shows what there is`},
		{"reset login e more", "unexpected argument more; --help shows what there is"},
		{"reset login e --limit 5/1h", "unknown flag --limit; --help shows what there is"},
		{"reset login e --yes=maybe", `--yes: bool value must be true, 1, yes, false, 0 or no but got "maybe"`},
		{"reset login e", "nothing was deleted: reset asks for confirmation, and the standard input is not a terminal; add --yes to delete without confirmation"},
		{"reset lo/gin e --yes --redis 127.0.0.1:1", `limiter name "lo/gin" has the byte "/"; use only A-Z a-z 0-9 . _ - and colon`},
		{"inspect login e --redis 127.0.0.1:1 --secret-file " + columns, "has a Secret of 7 bytes; give it at least 16 random ones"},
		{"reset login e --yes --redis 127.0.0.1:1", "--redis 127.0.0.1:1: no Redis server or cluster answers there"},
		{"proxy", "--to is missing; name the server to forward requests to, as in --to http://127.0.0.1:8080"},
		{"proxy --to", "--to: its value is missing; write one, or leave out the flag"},
		{"proxy --to localhost:8080", `--to: "localhost:8080" is not the URL of a server; write it with its scheme, as in http://127.0.0.1:8080`},
		{"proxy --to http://name:secret@localhost:8080", "--to: its URL has a user, a query or a fragment, which are not passed on; write @ in a path as %40, and the URL as in http://127.0.0.1:8080"},
		{"proxy --to http://name:p/secret@localhost:8080", "--to: its URL has a user, a query or a fragment"},
		{"top redis://u:secret@h:1", `limiter name "redis://***@h:1" has the byte`},
		{"top --max-time redis://u:secret@h", `--max-time: expected duration but got "redis://***@h"`},
		{"proxy --to http://name:1/secret@localhost:8080", "--to: its URL has a user, a query or a fragment"},
		{"proxy --to http://localhost:port?key=secret@", "--to: its URL has a user, a query or a fragment"},
		{"proxy --to http://h --to http://h", "--to: it is given twice; choose one"},
		{"proxy --to http://h", "there is nothing to limit; write --limit 10/1s, or a --route"},
		{"proxy --to http://h --limit 5", `--limit: limit "5": has no slash; write units per time, as in 5/1h`},
		{"proxy --to http://h --limit 5/1h --listen 8000", "--listen: listen tcp: address 8000: missing port in address; write an address of this machine with a free port, as in :8000"},
		{"proxy --to http://h --limit 5/1h --listen " + taken + " --admin 127.0.0.1:0", "--listen: listen tcp " + taken + ": bind: address already in use; write an address of this machine with a free port, as in :8000"},
		{"proxy --to http://h --limit 5/1h --listen 127.0.0.1:0 --admin " + taken, "--admin: listen tcp " + taken + ": bind: address already in use; write an address of this machine with a free port, as in 127.0.0.1:8001"},
		{"proxy --to http://h --limit 5/1h --by ip", `--by: "ip" does not name a client; write address, header:NAME, cookie:NAME or all`},
		{"proxy --to http://h --limit 5/1h --by header:", `--by: "header:" does not name a client; write address, header:NAME, cookie:NAME or all`},
		{"proxy --to http://h --limit 5/1h --by header:Host", `--by: "header:Host" is not a field to limit by; write a --route for each host, as in 'api.example.com/ 5/1h by all'`},
		{"proxy --to http://h --limit 5/1h --by all --by all", "--by: it is given twice; choose one"},
		{"proxy --to http://h --limit 5/1h --behind 10.0.0.1/24", `--behind: the proxy "10.0.0.1/24" is not a plain address or network; write one as 10.0.0.1 or 10.0.0.0/24`},
		{"proxy --to http://h --limit 5/1h --behind 0.0.0.0/0", `--behind: the proxy "0.0.0.0/0" is not a plain address or network`},
		{"proxy --to http://h --limit 5/1h --outage open", "--outage applies only with a Redis, and there is none; write --redis, or leave it out"},
		{"proxy --to http://h --limit 5/1h --outage perhaps", `--outage: there is no "perhaps"; choose local, open or closed`},
		{"proxy --to http://h --limit 5/1h --timeout 5", `--timeout: "5" is not a time to wait for Redis; write one from 1ms to 1m, as in 500ms`},
		{"proxy --to http://h --limit 5/1h --timeout 5h", `--timeout: "5h" is not a time to wait for Redis; write one from 1ms to 1m, as in 500ms`},
		{"proxy --to http://h --limit 5/1h --timeout 5ms", "--timeout applies only with a Redis, and there is none; write --redis, or leave it out"},
		{"proxy --to http://h --limit 5/1h --redis-key no-such", "--redis-key applies only with a Redis, and there is none; write --redis, or leave it out"},
		{"proxy --to http://h --limit 5/1h --secret-file " + columns, "--secret-file holds 7 bytes, which can be guessed; write at least 16 random ones, as with head -c 32 /dev/urandom"},
		{"inspect login e --redis 127.0.0.1:1,127.0.0.1:2", "--redis 127.0.0.1:1,127.0.0.1:2: no Redis"},
		{"inspect login e --redis redis://127.0.0.1:1/3", "--redis 127.0.0.1:1/3: no Redis"},
		{"proxy --to redis://u:hunter2", `--to: "redis://***" is not the URL of a server; write it with its scheme, as in http://127.0.0.1:8080`},
		{"proxy --to http://h --limit 5/1h --name a/b", `limiter name "a/b" has the byte "/"; use only A-Z a-z 0-9 . _ - and colon`},
		{"proxy --to http://h --limit 5/1h --redis localhost", `--redis: "localhost" is not the address of a Redis server; write host:port, as in 127.0.0.1:6379`},
		{"proxy --to http://h --route", `--route: its value is missing; write one, as in 'POST /login 1/5s,5/1h'`},
		{"proxy --to http://h --route /login", `--route: "/login" is not a route; write a pattern, limits or none, and perhaps by WHO, as in 'POST /login 1/5s,5/1h by address'`},
		{"proxy --to http://h --route /login=5", `--route: "/login=5" is not a route`},
		{"proxy --to http://h --limit 5/1h --route= ", `--route: "" is not a route`},
		{"replay no-such.log", `there is no file "no-such.log"; name a log (slidegate help replay shows how to get one), or no file for the built-in sample`},
		{"replay " + empty + " redis://u:secret@h:1", `there is no file "redis://***@h:1"; name a log (slidegate help replay shows how to get one), or no file for the built-in sample`},
		{"replay " + broken + "/x", `cannot read "` + broken + `/x" (not a directory); name a log that can be read`},
		{"replay .", `"." is a directory; name the logs in it`},
		{"replay -", "nothing to replay: standard input is empty"},
		{"replay " + empty, "nothing to replay: " + empty + " is empty"},
	} {
		stdout, stderr, status := command(t.Context(), strings.Fields(tt.args)...)
		if status != 1 || stdout != "" || !strings.HasPrefix(stderr, "slidegate: ") || strings.Count(stderr, "\n") != 1 || nextSentence.MatchString(stderr) || !strings.Contains(stderr, tt.want) || strings.Contains(stderr, "secret@") {
			t.Errorf("slidegate %s: status %d\n got %s%s\nwant %s", tt.args, status, stdout, stderr, tt.want)
		}
	}
	if _, stderr, status := command(t.Context(), "replay", broken); status != 0 {
		t.Errorf("one broken line: status %d, %s", status, stderr)
	}
}

// TestRegexAsTyped checks that a regular expression appears in the report and in errors the way it
// was typed.
func TestRegexAsTyped(t *testing.T) {
	const regex = `from ([0-9a-f.:]+)\b`
	if stdout, stderr, _ := command(t.Context(), "replay", "--by", regex); !strings.Contains(stdout, " by '"+regex+"'\n") {
		t.Errorf("%s%s", stdout, stderr)
	}
	for _, regex := range []string{`nobody (\w+)`, `((\w+)`, `(\w)(\d)`} {
		if stdout, stderr, status := command(t.Context(), "replay", "--by", regex); status != 1 || stdout != "" || !strings.Contains(stderr, "'"+regex+"'") {
			t.Errorf("status %d: %s%s", status, stdout, stderr)
		}
	}
}

// busy returns an address whose port is in use.
func busy(t *testing.T) string {
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Close() })
	return held.Addr().String()
}

// TestBadRoutes checks the errors about routes, whose values contain spaces.
func TestBadRoutes(t *testing.T) {
	for route, want := range map[string]string{
		"POST /login 5":          `--route: "POST /login 5": limit "5": has no slash; write units per time, as in 5/1h`,
		"POST /login 5/1h,6/60m": `--route: "POST /login 5/1h,6/60m": 5/1h and 6/60m have the same window; keep the tighter one`,
		"login 5/1h":             `--route: "login 5/1h" is not a route; write a pattern, limits or none, and perhaps by WHO, as in 'POST /login 1/5s,5/1h by address'`,
		"/login 5/1h by":         `--route: "/login 5/1h by" is not a route; write a pattern, limits or none, and perhaps by WHO, as in 'POST /login 1/5s,5/1h by address'`,
		"/login 5/1h by me":      `--route: "me" does not name a client; write address, header:NAME, cookie:NAME or all`,
		"/{a}/b 5/1h":            `route "/{a}/b" conflicts with "/x/{c}", because some requests match both; write a third that matches just these, or change one`,
		"P@ST /x 5/1h":           `route "P@ST /x" is not a pattern (at offset 0: invalid method "P@ST"); write one such as POST /login, /api/ or GET api.example.com/items/{id}`,
		"/ 6/1h":                 `route "/" already has limits; write them as one list, as in 1/5s,5/1h`,
	} {
		stdout, stderr, status := command(t.Context(), "proxy", "--to", "http://h", "--limit", "5/1h", "--route", "/x/{c} 1/1h", "--route", route)
		if status != 1 || stdout != "" || stderr != "slidegate: "+want+"\n" {
			t.Errorf("%s: status %d\n got %s%s\nwant %s", route, status, stdout, stderr, want)
		}
	}
}

// TestEmptyArguments checks the errors about empty arguments, which come from unset shell
// variables.
func TestEmptyArguments(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{""}, `unexpected argument "", did you mean one of "replay", "inspect", "top", "reset", "override", "overrides", "proxy"?; --help shows what there is`},
		{[]string{"inspect", "login", "e", ""}, `unexpected argument ""; --help shows what there is`},
		{[]string{"replay", ""}, "[<file> ...]: its value is empty; write one, or leave it out"},
		{[]string{"inspect", "login", ""}, "[<event>]: it is empty; write the one that the service uses"},
		{[]string{"inspect", "", "alice"}, "[<name>]: it is empty; write the one that the service uses"},
		{[]string{"reset", "--yes", "login", ""}, "<event>: it is empty; write the one that the service uses"},
	} {
		if stdout, stderr, status := command(t.Context(), tt.args...); status != 1 || stdout != "" || stderr != "slidegate: "+tt.want+"\n" {
			t.Errorf("%q: status %d, %s%s", tt.args, status, stdout, stderr)
		}
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
	t.Parallel()
	program := filepath.Join(t.TempDir(), "slidegate.exe")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(program, "replay", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var p replay.Report
	if err := json.Unmarshal(out, &p); err != nil || !p.Sample || p.Attempts == 0 || p.Sets[0].Allowed+p.Sets[0].Denied != p.Attempts {
		t.Errorf("%v: %s", err, out)
	}
	failed := exec.Command(program, "replay", "no-such.log")
	if out, err := failed.CombinedOutput(); err == nil || failed.ProcessState.ExitCode() != 1 || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v: %s", err, out)
	}
}
