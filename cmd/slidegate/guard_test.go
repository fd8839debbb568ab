package main

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/login"
)

// guardedService is a service with a login guard. Its attempts fail so long before the tests look.
type guardedService struct {
	*service
	file string // with the secret
	now  time.Time
	*login.Guard
}

func newGuardedService(t *testing.T) *guardedService {
	t.Helper()
	return guard(t, newService(t))
}

// guard gives a service a login guard of its name.
func guard(t *testing.T, s *service) *guardedService {
	t.Helper()
	g := &guardedService{service: s}
	g.secret = []byte("sixteen bytes, or more")
	g.file = write(t, string(g.secret)+"\n")
	var err error
	if g.Guard, err = login.New(g.client, login.Config{Name: g.name, Secret: g.secret, Now: func() time.Time { return g.now }}); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *guardedService) fail(t *testing.T, account, ip string, ago ...time.Duration) {
	t.Helper()
	for _, a := range ago {
		g.now = afternoon.Add(-a)
		if _, err := g.Begin(t.Context(), account, netip.MustParseAddr(ip)); err != nil {
			t.Fatal(err)
		}
	}
}

// inspect runs slidegate inspect --login in the afternoon.
func (g *guardedService) inspect(t *testing.T, want int, flags string, args ...string) string {
	t.Helper()
	all := append([]string{"--login", "--redis", redistest.Addr(t), "--secret-file", g.file}, strings.Fields(flags)...)
	stdout, stderr, status := inAfternoon(t.Context(), append(append(all, g.name), args...)...)
	if status != want || stderr != "" {
		t.Errorf("%q: status %d, not %d: %s", args, status, want, stderr)
	}
	return onDefault(t, g.name, stdout)
}

// seconds are so many moments, a second apart.
func seconds(from time.Duration, n int) (all []time.Duration) {
	for i := range n {
		all = append(all, from-time.Duration(i)*time.Second)
	}
	return all
}

// TestInspectLoginGolden: what a person on call sees of an account, and the exit status.
func TestInspectLoginGolden(t *testing.T) {
	g := newGuardedService(t)
	g.fail(t, "alice", "192.0.2.31", append(seconds(30*m, 5), seconds(20*m, 5)...)...)
	g.fail(t, "bob", "198.51.100.9", seconds(3*h, 3)...)
	for _, tt := range []struct {
		name, flags, args string
		status            int
	}{
		{"denied", "", "alice 192.0.2.31", 3},
		{"elsewhere", "", "alice 2001:db8::7", 0},
		{"account", "", "bob", 0},
		{"unknown", "", "Alice 203.0.113.5", 4},
		{"lowered", "--budget account=5/1d --budget streak=2/30d", "bob 198.51.100.9", 3},
	} {
		checkGolden(t, filepath.Join("testdata", "inspect-login-"+tt.name+".golden"), g.inspect(t, tt.status, tt.flags, strings.Fields(tt.args)...))
	}
}

// TestInspectLoginJSON: what --json prints says the same as the guard, and until when.
func TestInspectLoginJSON(t *testing.T) {
	g := newGuardedService(t)
	g.fail(t, "b {}%\xff 'b", "192.0.2.31", seconds(20*time.Second, 5)...)
	var got struct {
		Account, Address string
		Known, Allowed   bool
		RetryAfter       int64 `json:"retry_after_ms"`
		Why              []struct {
			Budget      login.Budget
			Text, Limit string
		}
		Budgets []any
	}
	text := g.inspect(t, 3, "--json", "b {}%\xff 'b", "192.0.2.31")
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if got.Allowed || !got.Known || got.RetryAfter != 40_000 || got.Address != "192.0.2.31" || len(got.Budgets) != 5 {
		t.Errorf("%s", text)
	}
	if len(got.Why) != 1 || got.Why[0].Budget != login.Pair || got.Why[0].Text != "5 failures within 1m, from this address on this account" || got.Why[0].Limit != "5/1m" {
		t.Errorf("%+v", got.Why)
	}
	checkFields(t, text)
	g.now = afternoon.Add(40*time.Second - time.Millisecond)
	if a, err := g.Begin(t.Context(), "b {}%\xff 'b", netip.MustParseAddr("192.0.2.31")); err != nil || a.Allowed || a.Denied != login.Pair {
		t.Errorf("a millisecond early: %+v, %v", a, err)
	}
}

// TestInspectLoginOnlyLooks: nothing is written, and an account's reset is the command that the
// text shows.
func TestInspectLoginOnlyLooks(t *testing.T) {
	g := newGuardedService(t)
	g.fail(t, "o'hara", "2001:db8::1", seconds(20*time.Second, 5)...)
	before := keys(t, g.name)
	text := g.inspect(t, 3, "", "o'hara", "2001:db8::ffff")
	if after := keys(t, g.name); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("%q became %q", before, after)
	}
	if want := `next: slidegate reset --secret-file FILE login.pair '2001:db8::/64 o'\''hara'` + "\n"; !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
	if _, stderr, status := command(t.Context(), "reset", "--yes", "--redis", redistest.Addr(t), "--secret-file", g.file, g.name+".pair", "2001:db8::/64 o'hara"); status != 0 {
		t.Fatal(stderr)
	}
	g.inspect(t, 0, "", "o'hara", "2001:db8::ffff")
}

// TestInspectLoginAddress: an address is shown as the guard takes it.
func TestInspectLoginAddress(t *testing.T) {
	g := newGuardedService(t)
	g.fail(t, "alice", "192.0.2.31", seconds(20*time.Second, 5)...)
	for ip, want := range map[string]string{"::ffff:192.0.2.31": "192.0.2.31", "::ffff:192.0.2.31%\x1b[2J": "192.0.2.31"} {
		if text := g.inspect(t, 3, "", "alice", ip); !strings.Contains(text, "account  alice from "+want+"\n") {
			t.Errorf("%q: %s", ip, text)
		}
	}
}

// TestInspectStatus: the exit status of an event says what its text says.
func TestInspectStatus(t *testing.T) {
	s := newService(t)
	s.count(t, "2/1h", "full", 2, 30*m)
	for args, want := range map[string]int{
		"--limit 2/1h NAME full": 3, "--limit 2/1h --json NAME full": 3, "--limit 3/1h NAME full": 0, "NAME full": 0, "--limit 2/1h NAME typo": 4, "NAME typo": 4,
	} {
		args := strings.Fields("--redis " + redistest.Addr(t) + " " + strings.ReplaceAll(args, "NAME", s.name))
		if _, stderr, status := inAfternoon(t.Context(), args...); status != want || stderr != "" {
			t.Errorf("%q: status %d, not %d: %s", args, status, want, stderr)
		}
	}
}
