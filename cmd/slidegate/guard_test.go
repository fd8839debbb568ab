package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
)

// TestInspectLoginGolden compares the text for an account, and the exit status, with golden files.
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

// TestInspectChallengedGolden compares the text for an account of a service with challenges, and the
// exit status, with golden files. The verdict and the exit
// status concern attempts without a challenge.
func TestInspectChallengedGolden(t *testing.T) {
	g := newGuardedService(t)
	g.failBoth(t, "alice", "192.0.2.31", append(seconds(30*m, 5), seconds(20*m, 5)...), seconds(10*m, 3))
	g.failBoth(t, "bob", "198.51.100.9", seconds(3*h, 2), seconds(30*time.Second, 5))
	g.failBoth(t, "carol", "203.0.113.5", append(seconds(30*m, 5), seconds(20*m, 5)...), append(seconds(9*m, 4), 20*time.Second))
	for _, tt := range []struct {
		name, flags, args string
		status            int
	}{
		{"helps", "", "alice 192.0.2.31", 3},
		{"helps-not", "", "bob 198.51.100.9", 0},
		{"denied", "", "carol 203.0.113.5", 3},
		{"account", "--budget challenged-account=2/1d", "bob", 0},
	} {
		text := g.inspect(t, tt.status, "--challenged "+tt.flags, strings.Fields(tt.args)...)
		checkGolden(t, filepath.Join("testdata", "inspect-challenged-"+tt.name+".golden"), text)
	}
}

// TestInspectChallengedAsGuard checks that --json agrees with the guard on whether a challenge
// would help, and that the reset commands in the text end the denials of attempts with and without
// a challenge.
func TestInspectChallengedAsGuard(t *testing.T) {
	g := newGuardedService(t)
	for n := range 6 {
		account, address := fmt.Sprintf("user%d", n), fmt.Sprintf("192.0.2.%d", n+1)
		g.failBoth(t, account, address, seconds(30*time.Second, 5), seconds(20*time.Second, n))
		text := g.inspect(t, 3, "--challenged --json", account, address)
		var got struct{ Challenge *bool }
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Challenge == nil {
			t.Fatalf("%v: %s", err, text)
		}
		checkFields(t, "inspect.md", text)
		a, err := g.challenged(t, 0).Begin(t.Context(), account, netip.MustParseAddr(address))
		if err != nil || a.Allowed || a.Challenge != *got.Challenge || a.Challenge != (n < 5) {
			t.Errorf("%d failures with challenges: %+v, %v; %s", n, a, err, text)
		}
	}
	text := g.inspect(t, 3, "--challenged", "user5", "192.0.2.6")
	for budget, event := range map[string]string{"pair": "192.0.2.6 user5", "challenged-pair": "192.0.2.6 user5", "challenged-account": "user5"} {
		if want := "slidegate reset --secret-file FILE login." + budget + " "; !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
		if _, stderr, status := command(t.Context(), "reset", "--yes", "--redis", redistest.Addr(t), "--secret-file", g.file, g.name+"."+budget, event); status != 0 {
			t.Fatal(stderr)
		}
	}
	if text := g.inspect(t, 0, "--challenged", "user5", "192.0.2.6"); !strings.Contains(text, "A challenge would let the user in now.\n") {
		t.Error(text)
	}
}

// TestInspectChallengedTotal checks that the total budget also denies challenged attempts.
func TestInspectChallengedTotal(t *testing.T) {
	g := newGuardedService(t)
	for range 5 {
		if a, err := g.challenged(t, m).BeginKnown(t.Context(), "alice", netip.MustParseAddr("192.0.2.31"), "phone"); err != nil || !a.Allowed {
			t.Fatal(a, err)
		}
	}
	text := g.inspect(t, 3, "--challenged --budget account=2/1h --budget challenged-account=2/1h --budget total=5/1h", "alice", "192.0.2.31")
	for _, want := range []string{"A challenge would not let the user in: denied by total for 59m.\n", "next: slidegate reset --secret-file FILE login.total alice\n"} {
		if !strings.Contains(text, want) || strings.Count(text, "slidegate reset") != 1 {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestInspectLoginJSON checks that --json agrees with the guard on whether an attempt is denied,
// and until when.
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
	if len(got.Why) != 1 || got.Why[0].Budget != login.BudgetPair || got.Why[0].Text != "5 failures within 1m, from this address on this account" || got.Why[0].Limit != "5/1m" {
		t.Errorf("%+v", got.Why)
	}
	checkFields(t, "inspect.md", text)
	g.now = afternoon.Add(40*time.Second - time.Millisecond)
	if a, err := g.Begin(t.Context(), "b {}%\xff 'b", netip.MustParseAddr("192.0.2.31")); err != nil || a.Allowed || a.DeniedBy != login.BudgetPair {
		t.Errorf("a millisecond early: %+v, %v", a, err)
	}
}

// TestInspectLoginOnlyLooks checks that nothing is written, and that the command shown in the text
// resets an account.
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

// TestInspectLoginAddress checks that an address is shown in the form in which the guard counts it.
func TestInspectLoginAddress(t *testing.T) {
	g := newGuardedService(t)
	g.fail(t, "alice", "192.0.2.31", seconds(20*time.Second, 5)...)
	for ip, want := range map[string]string{"::ffff:192.0.2.31": "192.0.2.31", "::ffff:192.0.2.31%\x1b[2J": "192.0.2.31"} {
		if text := g.inspect(t, 3, "", "alice", ip); !strings.Contains(text, "account  alice from "+want+"\n") {
			t.Errorf("%q: %s", ip, text)
		}
	}
}

// TestInspectStatus checks that the exit status for an event agrees with the text.
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
