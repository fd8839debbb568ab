package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// topped holds what the tests read from slidegate top --json.
type topped struct {
	Masters  int
	Keys     int64
	Seen     int64 `json:"keys_seen"`
	Complete bool
	Share    float64 `json:"share_seen"`
	Unread   int64
	Foreign  int64
	Limiters []toppedLimiter
}

type toppedLimiter struct {
	Limiter, Estimator string
	Events             int64
	Seen               int64 `json:"events_seen"`
	Hashed             int64 `json:"hashed_seen"`
	Bytes              int64
	Measured           int64 `json:"events_measured"`
	Fullest            []struct {
		Event   string
		Key     string
		Share   float64 `json:"share_used"`
		Windows []struct{ Used float64 }
	}
}

// top runs slidegate top --json in the afternoon.
func top(t *testing.T, args ...string) (got topped) {
	t.Helper()
	stdout, stderr, status := topInAfternoon(t.Context(), append([]string{"--json"}, args...)...)
	if status != 0 || stderr != "" {
		t.Fatalf("%q: status %d, %s", args, status, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// topInAfternoon runs slidegate top in the afternoon.
func topInAfternoon(ctx context.Context, args ...string) (stdout, stderr string, status int) {
	var out, errs strings.Builder
	status = run(ctx, append([]string{"top"}, args...), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, Now: func() time.Time { return afternoon }})
	return out.String(), errs.String(), status
}

// fleet creates limiters of all packages on a server.
func fleet(t *testing.T, client rueidis.Client) {
	t.Helper()
	s := &service{name: "login", client: client}
	s.count(t, "1/5s,5/1h,20/1d", "198.51.100.7", 1, 21*h, 20*h, 9*h, 48*m, 31*m, 30*m, 12*m, 2*time.Second)
	s.count(t, "1/5s,5/1h,20/1d", "198.51.100.8", 1, 2*h, 20*m)
	s.count(t, "1/5s,5/1h,20/1d", "2001:db8::/64", 1, 23*h)
	s.raise(t, "5/1h", "alice", 1, 30*m, 20*m, 10*m)
	s.secret = []byte("sixteen bytes, or more")
	s.name = "login.pair"
	s.count(t, "5/1h", "198.51.100.7 alice", 1, 5*m)
	(&service{name: "mail", client: client}).book(t, "20/1m", "outbox", 20*time.Second, time.Second)
	l, err := inflight.New(window.On(client), inflight.Config{Name: "exports", Max: 5, TTL: time.Hour, Timeout: time.Minute})
	if err == nil {
		_, _, err = l.TryAcquireN(t.Context(), "customer-42", 3)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bytesOnServer matches numbers that depend on the version of Redis, and the space that pads a
// column.
var bytesOnServer = regexp.MustCompile(`(?m)\b(\d{3} B|\d\d B( |$))|"bytes": \d+`)

// TestTopGolden compares the text for limiters with golden files.
func TestTopGolden(t *testing.T) {
	server := redistest.Start(t)
	fleet(t, server.Client(t))
	for name, args := range map[string]string{
		"top": "", "top-name": "login", "top-limits": "--limit 1/5s,5/1h,20/1d login",
		"top-inflight": "--limit 5 exports", "top-hashed": "login.pair", "top-nobody": "logins", "top-json": "--json --limit 5/1h login",
	} {
		stdout, stderr, _ := topInAfternoon(t.Context(), strings.Fields("--redis "+server.Addr()+" "+args)...)
		shown := bytesOnServer.ReplaceAllStringFunc(strings.NewReplacer(" \\\n     ", "", " --redis "+server.Addr(), "", server.Addr(), "127.0.0.1:6379").Replace(stdout), func(s string) string {
			return strings.TrimSuffix(regexp.MustCompile(`\d+`).ReplaceAllString(s, "480"), " ")
		})
		checkGolden(t, filepath.Join("testdata", name+".golden"), shown+stderr)
	}
}

// TestTopPage compares docs/top.md with the output of the program.
func TestTopPage(t *testing.T) {
	checkGoldenShown(t, "top.md", "top")
	checkGoldenShown(t, "top.md", "top-limits")
	checkFields(t, "top.md", text(t, filepath.Join("testdata", "top-json.golden")))
}

// TestTopAsInspect checks that top and inspect report the same units for the fullest events.
func TestTopAsInspect(t *testing.T) {
	s := newService(t)
	for i := range 30 {
		s.count(t, "50/1h,90/1d", fmt.Sprint("e", i), int64(1+i), 2*h, 50*m)
	}
	got := top(t, "--redis", redistest.Addr(t), "--max-time", "10m", "--limit", "50/1h", s.name).Limiters[0]
	if got.Events != 30 || len(got.Fullest) != 10 || got.Fullest[0].Event != "e29" || got.Fullest[0].Share != 0.6 {
		t.Errorf("%+v", got)
	}
	for _, e := range got.Fullest {
		for i, sec := range decoded(t, inspected(t, "--redis", redistest.Addr(t), "--json", s.name, e.Event)).Limits {
			if e.Windows[i].Used != float64(sec.Used) {
				t.Errorf("%s: %v, not %d", e.Event, e.Windows[i].Used, sec.Used)
			}
		}
	}
}

// TestTopCluster checks that the counts for a cluster are exact if the budget suffices, whichever
// node is named.
func TestTopCluster(t *testing.T) {
	node, _, _ := strings.Cut(clusterAddresses(t), ",")
	s := &service{name: redistest.Key(t), client: redistest.Cluster(t)}
	for i := range 300 {
		s.count(t, "5/1h", fmt.Sprint("e", i), int64(1+i%5), 30*m)
	}
	got := top(t, "--redis", node, "--max-time", "10m", s.name)
	l := got.Limiters[0]
	if got.Masters != 3 || !got.Complete || got.Share != 1 || l.Events != 300 || l.Seen != 300 || l.Fullest[9].Windows[0].Used != 5 {
		t.Errorf("%+v", got)
	}
	if l.Measured < 200 || l.Bytes < 300*50 || l.Bytes > 300*400 {
		t.Errorf("%d bytes, by %d events", l.Bytes, l.Measured)
	}
	all := top(t, "--redis", node, "--max-time", "10m")
	if !slices.ContainsFunc(all.Limiters, func(l toppedLimiter) bool { return l.Limiter == s.name && l.Events == 300 }) {
		t.Errorf("%+v", all)
	}
}

// TestTopEstimates checks that if the budget is used up before all keys are seen, top says so and
// estimates the counts.
func TestTopEstimates(t *testing.T) {
	server := redistest.Start(t)
	s := &service{name: "login", client: server.Client(t)}
	l := s.limiter(t, "5/1h")
	redistest.AtOnce(4000, func(i int) {
		if _, err := l.Allow(t.Context(), fmt.Sprint("e", i)); err != nil {
			t.Error(err)
		}
	})
	got := top(t, "--redis", server.Addr(), "--max-time", "10m", "--max-keys", "1000")
	if l := got.Limiters[0]; got.Complete || got.Share < 0.2 || got.Share > 0.4 || l.Seen < 900 || l.Seen > 1600 || l.Events < 3000 || l.Events > 5000 {
		t.Errorf("%+v", got)
	}
	for args, want := range map[string]string{
		"login": "about 4,000 events of login, estimated from ",
		"":      "event counts and bytes are estimated\n",
		"nope":  "no event of nope among the ",
	} {
		stdout, _, _ := topInAfternoon(t.Context(), strings.Fields("--redis "+server.Addr()+" --max-time 10m --max-keys 1000 "+args)...)
		if !strings.Contains(stdout, want) && args != "login" || !strings.Contains(stdout, "estimated") {
			t.Errorf("%s: no %q in %s", args, want, stdout)
		}
	}
}

// TestTopHostile checks that keys of other programs are not counted, whatever they look like and
// contain, and that no text from a key reaches the terminal unescaped.
func TestTopHostile(t *testing.T) {
	server := redistest.Start(t)
	s := &service{name: "login", client: server.Client(t)}
	hostile := []string{"\x1b[2J\x07", "\xff\xfe", "\u202e gnp.exe", "a\nb\tc", strings.Repeat("x", 128), strings.Repeat("y", 1000), "{}%~", "~x", "login:{b}:w"}
	for _, event := range hostile {
		s.count(t, "5/1h", event, 1, 20*m)
	}
	record := server.Do(t.Context(), "GET", "login:{%7Ex}:w")
	text, _ := record.ToString()
	for _, set := range [][]string{
		{"SET", "login:{text}:w", "hello"},
		{"SET", "login:{huge}:w", strings.Repeat("x", 1<<20)},
		{"SET", "login:{long}:w", "\x81" + strings.Repeat("x", 1<<16)}, // like a record with many buckets
		{"SET", "login:{other}:a", text},
		{"RPUSH", "login:{list}:w", "x"},
		{"SET", "login:{string}:l", "x"},
		{"ZADD", "login:{scores}:l", "5", "x"},
		{"SADD", "login:{set}:r", "x"},
		{"SET", "login:{overrides}:o", "x"},
		{"SET", "login:{~AAAAAAAA.1}:p", "x"},
		{"SET", "session:{abc}", "x"},
		{"SET", "login:{\x1b[2J}:w", text},
		{"SET", "lo\x1bgin:{a}:w", text},
		{"SET", strings.Repeat("n", 65) + ":{a}:w", text},
		{"SET", strings.Repeat("k", 1<<20), "x"},
		{"SET", "\xff\x00", "x"},
	} {
		if err := server.Do(t.Context(), set...).Error(); err != nil {
			t.Fatal(err)
		}
	}
	got := top(t, "--redis", server.Addr())
	if l := got.Limiters; got.Foreign != 7 || got.Unread != 1 || len(l) != 1 || l[0].Events != int64(len(hostile))+1 || l[0].Hashed != 1 {
		t.Errorf("%+v", got)
	}
	for _, args := range []string{"", "login", "--limit 5/1h login"} {
		stdout, stderr, _ := topInAfternoon(t.Context(), strings.Fields("--redis "+server.Addr()+" "+args)...)
		if i := strings.IndexFunc(stdout+stderr, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%s: a control character in %q", args, stdout+stderr)
		}
	}
}

// TestTopOnlyReads checks that the user in docs/keys.md has all the permissions that top and inspect
// need, and that inspect needs none that a limiter does not.
func TestTopOnlyReads(t *testing.T) {
	server := redistest.Start(t)
	fleet(t, server.Client(t))
	rule := regexp.MustCompile(`ACL SETUSER looker .*`).FindString(text(t, "../../docs/keys.md"))
	for _, set := range [][]string{
		strings.Fields(strings.ReplaceAll(rule, ">password", ">pass")),
		{"ACL", "SETUSER", "limiter", "on", ">pass", "~login:*", "+evalsha", "+eval", "+get", "+time", "+hello", "+client|tracking"},
	} {
		if err := server.Do(t.Context(), set...).Error(); err != nil {
			t.Fatalf("%q: %v", set, err)
		}
	}
	got := top(t, "--redis", "redis://looker:pass@"+server.Addr())
	if got.Unread != 0 || got.Foreign != 0 || len(got.Limiters) != 5 {
		t.Errorf("%+v", got)
	}
	for _, args := range []string{"login 198.51.100.7", "--ar1 login alice", "--pace mail outbox", "--inflight exports customer-42"} {
		if st := decoded(t, inspected(t, strings.Fields("--json --redis redis://looker:pass@"+server.Addr()+" "+args)...)); !st.Stored {
			t.Errorf("%s: %+v", args, st)
		}
	}
	_, stderr, status := topInAfternoon(t.Context(), "--redis", "redis://limiter:pass@"+server.Addr())
	if status != 1 || !strings.Contains(stderr, "NOPERM") || !strings.HasSuffix(stderr, "; name a user who may, with the rule in docs/keys.md of the project\n") || strings.Contains(stderr, "pass@") {
		t.Errorf("status %d, %s", status, stderr)
	}
	stdout, stderr, status := inAfternoon(t.Context(), "--redis", "redis://limiter:pass@"+server.Addr(), "login", "nobody")
	if status != 4 || stderr != "" {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
}

// TestTopErrors checks that each mistake causes a single sentence that says what to do.
func TestTopErrors(t *testing.T) {
	for args, want := range map[string]string{
		"--limit 5/1h":           "--limit applies to one limiter; name it, as in slidegate top --limit 5/1h login",
		"--limit 5h login":       `--limit: limit "5h": has no slash; write units per time, as in 5/1h`,
		"--limit 5/1h,6/1h a":    "--limit: 5/1h and 6/1h have the same window; keep the tighter one",
		"--limit 5,6 exports":    "--limit: 5 and 6 are both the Max of a limiter of package inflight; keep one",
		"--max-time 0s":          "--max-time 0s and --max-keys 5000000 have to be more than 0",
		"--max-keys 0":           "--max-time 5s and --max-keys 0 have to be more than 0",
		"lo{gin":                 `limiter name "lo{gin" has the byte "{"; use only A-Z a-z 0-9 . _ - and colon`,
		"--redis 127.0.0.1:1 a ": "--redis 127.0.0.1:1: no Redis server or cluster answers there (dial tcp 127.0.0.1:1: connect: connection refused); start it, or correct the address",
	} {
		stdout, stderr, status := topInAfternoon(t.Context(), strings.Fields(args)...)
		if status != 1 || stdout != "" || stderr != "slidegate: "+want+"\n" {
			t.Errorf("%s: status %d, %s%s\nwant %s", args, status, stdout, stderr, want)
		}
	}
}
