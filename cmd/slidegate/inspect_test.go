package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/inspect"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// inspected returns the output of inspect in the afternoon.
func inspected(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, status := inAfternoon(t.Context(), args...)
	if status == 1 || status == 130 || stderr != "" {
		t.Fatalf("%q: status %d, %s", args, status, stderr)
	}
	return stdout
}

// TestInspectGolden compares the text for an event with golden files.
func TestInspectGolden(t *testing.T) {
	s := newService(t)
	const login, address = "1/5s,5/1h,20/1d", "198.51.100.7"
	s.count(t, login, address, 1, 21*h, 20*h, 9*h, 8*h+50*m, 8*h+40*m, 4*h, 48*m, 31*m, 30*m, 12*m, 2*time.Second)
	s.count(t, "100/1m,5000/1d", "key-7", 40, 23*h, 22*h, 7*h, 20*time.Second)
	s.count(t, "100/1m,5000/1d", "key-7", 3, 15*time.Second, 11*time.Second, 10*time.Second, time.Second)
	s.raise(t, "5/1h,100/1d", "key-7", 1, 3*h, 50*m, 40*m, 30*m, 20*m, 10*m, 9*m, 8*m)
	s.raise(t, "5/1h,100/1d", "key-8", 2, 2*h)
	s.book(t, "1/5s,20/1m", "key-7", 20*time.Second, 2*time.Second, 2*time.Second, time.Second)
	if err := s.book(t, "1/20ms,3/1m", "key-8", 30*time.Second, 2*time.Second).Pause(t.Context(), "key-8", 30*time.Second); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string]string{
		"inspect":             "--limit " + login + " NAME " + address,
		"inspect-stored":      "NAME " + address,
		"inspect-others":      "--limit 5/1h,5/10m NAME " + address,
		"inspect-fits":        "--limit 20/1d NAME " + address,
		"inspect-nothing":     "--limit 5/1h NAME nobody",
		"inspect-json":        "--json --limit 5/1h NAME " + address,
		"inspect-many":        "--limit 100/1m --limit 5000/1d NAME key-7",
		"inspect-ar1":         "--ar1 --limit 5/1h,100/1d NAME key-7",
		"inspect-ar1-stored":  "--ar1 NAME key-8",
		"inspect-ar1-json":    "--ar1 --json --limit 5/1h NAME key-8",
		"inspect-pace":        "--pace --limit 1/5s,20/1m NAME key-7",
		"inspect-pace-others": "--pace --limit 1/20ms NAME key-8",
		"inspect-pace-stored": "--pace NAME key-7",
		"inspect-pace-json":   "--pace --json --limit 3/1m NAME key-8",
		"inspect-pace-nobody": "--pace --limit 3/1m NAME nobody",
		"inspect-lowered":     "--limit 1/5s,3/1h,20/1d NAME " + address,
		"inspect-nobody-json": "--json NAME nobody",
	} {
		args := strings.Fields("--redis " + redistest.Addr(t) + " " + strings.ReplaceAll(args, "NAME", s.name))
		shown := onDefault(t, s.name, inspected(t, args...))
		checkGolden(t, filepath.Join("testdata", name+".golden"), shown)
	}
}

// TestInspectLooksOnly checks that no use of inspect creates or changes a key.
func TestInspectLooksOnly(t *testing.T) {
	s := newService(t)
	s.count(t, "1/5s,5/1h", "e", 1, 30*m, -10*m) // an attempt would correct the last time
	s.raise(t, "5/1h", "e", 1, 30*m)
	s.book(t, "5/1h", "e", 30*m, 30*m)
	for _, key := range []string{s.name + ":{e}:w", s.name + ":{e}:a", s.name + ":{e}:r", s.name + ":{nobody}:w"} {
		before := redistest.Stored(t, s.client, key)
		for _, args := range []string{"e", "--limit 1/5s,5/1h e", "--limit 3/10s e", "--json e", "--ar1 e", "--ar1 --limit 5/1h e", "--pace e", "--pace --limit 5/1h e", "nobody", "--limit 5/1h nobody"} {
			inspected(t, strings.Fields("--redis "+redistest.Addr(t)+" "+s.name+" "+args)...)
		}
		if after := redistest.Stored(t, s.client, key); after != before {
			t.Errorf("%s: %s became %s", key, before, after)
		}
	}
}

// TestInspectAsLibrary checks that --json agrees with the library for every event and limit.
func TestInspectAsLibrary(t *testing.T) {
	s := newService(t)
	for event, ago := range map[string][]time.Duration{"a": {59 * m, 58 * m, 2 * m, time.Second}, "b {}%\xff": {3 * h, 2 * h, 61 * m}, "c": {-5 * m}} {
		s.count(t, "3/1h,70/1d", event, 2, ago...)
		l, err := window.New(window.On(s.client), window.Config{Name: s.name, Limits: parsed(t, "2/1h,70/1d"), Timeout: time.Minute, Now: func() time.Time { return afternoon }})
		if err != nil {
			t.Fatal(err)
		}
		want, err := l.Inspect(t.Context(), event)
		if err != nil {
			t.Fatal(err)
		}
		got := decoded(t, inspected(t, "--redis", redistest.Addr(t), "--json", "--limit", "2/1h,70/1d", s.name, event))
		if got.Key != want.Key || !got.At.Equal(want.At) || !got.Stored {
			t.Errorf("%+v, not %+v", got, want)
		}
		for i, sec := range got.Limits {
			var buckets []window.Bucket
			for _, b := range sec.Buckets {
				buckets = append(buckets, window.Bucket(b))
			}
			said := window.LimitState{Buckets: buckets, Usage: window.Usage{
				Limit: limit(t, sec.Limit), Used: sec.Used, Remaining: sec.Remaining,
				RetryAfter: time.Duration(sec.RetryAfter) * time.Millisecond, ResetAfter: time.Duration(sec.ResetAfter) * time.Millisecond,
			}}
			if diff := cmp.Diff(want.Limits[i], said); diff != "" {
				t.Errorf("%q (-library +program):\n%s", event, diff)
			}
		}
	}
}

func decoded(t *testing.T, text string) (st inspect.State) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&st); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return st
}

// TestNextComesBack checks that units come back exactly at the time shown, and not a millisecond
// earlier.
func TestNextComesBack(t *testing.T) {
	s := newService(t)
	for event, ago := range map[string][]time.Duration{"even": {50 * m, 40 * m, 30 * m}, "burst": {7 * m, 7 * m, 7 * m}, "ahead": {30 * m, -20 * m, -20 * m}} {
		s.count(t, "6/1h", event, 2, ago...)
		for _, lowered := range []string{"6/1h", "5/1h", "3/1h", "1/1h"} {
			args := []string{"--redis", redistest.Addr(t), "--json", "--limit", lowered, s.name, event}
			sec := decoded(t, inspected(t, args...)).Limits[0]
			for after, want := range map[int64]int64{sec.NextAfter: sec.Remaining + sec.NextUnits, sec.NextAfter - 1: sec.Remaining} {
				l, err := window.New(window.On(s.client), window.Config{Name: s.name, Limits: parsed(t, lowered), Timeout: time.Minute, Now: func() time.Time {
					return afternoon.Add(time.Duration(after) * time.Millisecond)
				}})
				if err != nil {
					t.Fatal(err)
				}
				if got, err := l.Inspect(t.Context(), event); err != nil || got.Limits[0].Remaining != want {
					t.Errorf("%s of %s: %d free after %d ms, not %d: %v", lowered, event, got.Limits[0].Remaining, after, want, err)
				}
			}
		}
	}
}

// TestInspectClockBehind checks the notes shown after the clock has stepped back, with and without
// limits.
func TestInspectClockBehind(t *testing.T) {
	s := newService(t)
	s.count(t, "5/1h,9/1d", "e", 1, -5*m)
	for _, args := range [][]string{{"--limit", "5/1h", s.name, "e"}, {s.name, "e"}} {
		shown := inspected(t, append([]string{"--redis", redistest.Addr(t)}, args...)...)
		for _, want := range []string{"time     2025-03-04 14:05:00 UTC", "back: 1 in 1h5m, at 15:05:00\n", "it reads 5m earlier than the last event.\n"} {
			if !strings.Contains(shown, want) {
				t.Errorf("%q: no %q in\n%s", args, want, shown)
			}
		}
	}
}

// TestInspectInflight checks that --json agrees with package inflight, that the exit status says
// whether a place is free, and that reset forgets the leases.
func TestInspectInflight(t *testing.T) {
	s := newService(t)
	l, err := inflight.New(window.On(s.client), inflight.Config{Name: s.name, Max: 3, TTL: time.Hour, Holder: "web-1", Timeout: time.Minute})
	if err == nil {
		_, _, err = l.TryAcquireN(t.Context(), "e", 3)
	}
	if err != nil {
		t.Fatal(err)
	}
	want, err := l.Inspect(t.Context(), "e")
	if err != nil {
		t.Fatal(err)
	}
	for args, status := range map[string]int{"e": 0, "--limit 3 e": 3, "--limit 4 e": 0, "nobody": 4} {
		stdout, stderr, got := command(t.Context(), strings.Fields("inspect --inflight --json --redis "+redistest.Addr(t)+" "+s.name+" "+args)...)
		if got != status {
			t.Errorf("%s: status %d, not %d: %s", args, got, status, stderr)
		}
		if st := decoded(t, stdout); args != "nobody" && (st.Key != want.Key || st.Token != want.Token || len(st.Leases) != 1 || inflight.Held(st.Leases[0]) != want.Leases[0] || st.Limits[0].Used != 3) {
			t.Errorf("%s: %s, not %+v", args, stdout, want)
		}
	}
	stdout, stderr, status := command(t.Context(), "reset", "--inflight", "--yes", "--redis", redistest.Addr(t), s.name, "e")
	if wanted := want.Key + " on " + redistest.Addr(t) + " counts 3 units in 1 lease.\nForgotten.\n"; status != 0 || stdout != wanted || len(keys(t, s.name)) > 0 {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
}

// TestInspectHidden checks that an event whose key contains a hash is found only with the right
// secret.
func TestInspectHidden(t *testing.T) {
	s := newService(t)
	s.secret = []byte("sixteen bytes\x00\xff\r")
	s.count(t, "5/1h", "alice", 2, 30*m)
	for file, want := range map[string]bool{string(s.secret): true, string(s.secret) + "\n": true, string(s.secret) + "\n\n": false, "another, of 16 bytes": false} {
		st := decoded(t, inspected(t, "--redis", redistest.Addr(t), "--json", "--secret-file", write(t, file), s.name, "alice"))
		if st.Stored != want || !strings.HasPrefix(st.Key, s.name+":{~") {
			t.Errorf("%q: %+v", file, st)
		}
	}
	if st := decoded(t, inspected(t, "--redis", redistest.Addr(t), "--json", s.name, "alice")); st.Stored {
		t.Errorf("without: %+v", st)
	}
}

// TestInspectCluster checks that the events on all nodes of a cluster can be read through any node.
func TestInspectCluster(t *testing.T) {
	node, _, _ := strings.Cut(clusterAddresses(t), ",")
	s := &service{name: redistest.Key(t), client: redistest.Cluster(t)}
	for _, event := range []string{"a", "b", "c", "d", "e", "f"} {
		s.count(t, "5/1h", event, 3, 30*m)
		if shown := inspected(t, "--redis", node, s.name, event); !strings.Contains(shown, "\n1h  3 units counted; highest bar 3\n") {
			t.Errorf("%s: %s", event, shown)
		}
		if stdout, stderr, status := command(t.Context(), "reset", "--yes", "--redis", node, s.name, event); status != 0 || !strings.HasSuffix(stdout, "\nForgotten.\n") {
			t.Errorf("%s: status %d, %s%s", event, status, stdout, stderr)
		}
	}
	if left := keys(t, s.name); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

// TestInspectPassword checks that a password in a URL is used but not shown.
func TestInspectPassword(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "hunter2")
	for _, tt := range []struct{ redis, want string }{
		{"redis://:hunter2@" + server.Addr(), "limiter  login on " + server.Addr() + "\n"},
		{"redis://:hunter3@" + server.Addr(), ": the user or the password is wrong (WRONGPASS invalid username-password pair"},
		{server.Addr(), ": it requires a password (NOAUTH HELLO must be called with the client already authenticated); write a password into a URL, redis://user:password@host:6379, or name its file with --redis-password-file\n"},
	} {
		stdout, stderr, _ := command(t.Context(), "inspect", "--redis", tt.redis, "login", "alice")
		if shown := stdout + stderr; !strings.Contains(shown, tt.want) || strings.Contains(shown, "hunter2") || strings.Contains(shown, "hunter3") {
			t.Errorf("%s: %s", tt.redis, shown)
		}
	}
}

// TestInspectFails checks that an error is a single sentence that says what is wrong and what to
// do, and that inspect changes nothing.
func TestInspectFails(t *testing.T) {
	s, server := newService(t), redistest.Start(t)
	for _, set := range [][]string{
		{"SET", s.name + ":{text}:w", "hello"},
		{"LPUSH", s.name + ":{list}:w", "x"},
		{"SET", s.name + ":{text}:a", "hello"},
		{"SET", s.name + ":{text}:r", "hello"},
		{"SET", s.name + ":{text}:l", "hello"},
		{"ACL", "SETUSER", "blind", "on", ">pass", "~*", "+@all", "-evalsha", "-eval"},
		{"ACL", "SETUSER", "halfblind", "on", ">pass", "~*", "+@all", "-get"},
	} {
		if err := server.Do(t.Context(), set...).Error(); err != nil {
			t.Fatal(err)
		}
	}
	blind := server.NewClient(t, func(o *rueidis.ClientOption) { o.Username, o.Password = "blind", "pass" })
	refusal := blind.Do(t.Context(), blind.B().Arbitrary("EVALSHA", "0", "0").Build()).Error() // the message depends on the version of Redis
	ours := "SLIDEGATE key " + s.name + ":{text}:w holds no record that this version reads (first byte 104, or cut short); remove it, or rename the limiter\n"
	for _, tt := range []struct{ redis, args, want string }{
		{server.Addr(), "text", ours},
		{server.Addr(), "--limit 5/1h text", ours},
		{server.Addr(), "--ar1 text", strings.ReplaceAll(ours, "}:w", "}:a")},
		{server.Addr(), "--pace text", strings.ReplaceAll(ours, "}:w", "}:r")},
		{server.Addr(), "--inflight text", "WRONGTYPE key " + s.name + ":{text}:l holds no sorted set; remove it, or rename the limiter\n"},
		{server.Addr(), "list", "WRONGTYPE key " + s.name + ":{list}:w holds no string; remove it, or rename the limiter\n"},
		{server.Addr(), "--ar1 --limit 5/1h@10m e", "limit 1 with a Resolution of 10m0s; leave it at 0, because a level has no buckets\n"},
		{server.Addr(), "--pace --limit 5/1h@10m e", "limit 1 with a Resolution of 10m0s; leave it at 0, because turns have their own bucket width\n"},
		{server.Addr(), "--inflight --limit 1001 e", "has a Max of 1001; choose 1 to 1000 units\n"},
		{"redis://blind:pass@" + server.Addr(), "e", server.Addr() + " failed (" + strings.ReplaceAll(refusal.Error(), "User blind ", "User *** ") + "); name a user who may, as in redis://user:password@host:6379\n"},
		{"redis://halfblind:pass@" + server.Addr(), "e", "); name a user who may, as in redis://user:password@host:6379\n"},
	} {
		for _, verb := range []string{"inspect", "reset --yes"} {
			if verb != "inspect" && strings.Contains(tt.args, "--limit") {
				continue
			}
			args := strings.Fields(verb + " --redis " + tt.redis + " " + strings.Replace(" "+tt.args, " ", " "+s.name+" ", 1))
			stdout, stderr, status := command(t.Context(), args...)
			if status != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasSuffix(stderr, tt.want) {
				t.Errorf("%q: status %d, %s%s\nwant %s", args, status, stdout, stderr, tt.want)
			}
		}
	}
	if got, err := server.Do(t.Context(), "GET", s.name+":{text}:w").ToString(); got != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestInspectLongest checks the longest possible window with the largest possible number of units.
func TestInspectLongest(t *testing.T) {
	s := newService(t)
	s.count(t, "9007199254740992/36525d", "e", 1<<53, 30*m)
	shown := inspected(t, "--redis", redistest.Addr(t), "--limit", "9007199254740992/36525d", s.name, "e")
	for _, want := range []string{"used, NONE free; highest bar 9007199254740992\n", ", at 2125-03-05 13:30:00\n", "\n  ├ 36525d ago ─ 27393d18h ──────── 18262d12h ───────── 9131d6h ───────── now ┤\n"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
}

// TestInspectPage compares docs/inspect.md with the output of the program.
func TestInspectPage(t *testing.T) {
	for _, golden := range []string{"inspect", "inspect-stored", "inspect-nothing", "inspect-ar1", "inspect-pace", "inspect-inflight", "inspect-login-denied"} {
		checkGoldenShown(t, "inspect.md", golden)
	}
	for _, golden := range []string{"inspect-json", "inspect-ar1-json", "inspect-pace-json", "inspect-inflight-json", "inspect-nobody-json"} {
		checkFields(t, "inspect.md", text(t, filepath.Join("testdata", golden+".golden")))
	}
}
