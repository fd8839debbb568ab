package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// overridden runs the program in the afternoon. It returns the output, rewritten by onDefault, and
// the exit status.
func overridden(t *testing.T, s *service, args ...string) (shown string, status int) {
	t.Helper()
	var out, errs strings.Builder
	at := append([]string{args[0], "--redis", redistest.Addr(t)}, args[1:]...)
	status = run(t.Context(), at, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, Now: func() time.Time { return afternoon }})
	if errs.String() != "" {
		t.Errorf("%q: status %d, %s", args, status, &errs)
	}
	return onDefault(t, s.name, out.String()), status
}

// TestOverrideGolden sets overrides in each mode, and compares what override, overrides and inspect
// print with golden files.
func TestOverrideGolden(t *testing.T) {
	t.Setenv("USER", "ann")
	s := newService(t)
	s.count(t, "5/1h", "key-7", 1, 30*m, 20*m, 10*m, 5*m, 2*m)
	for _, step := range []struct {
		golden string
		status int
		args   []string
	}{
		{"override", 0, []string{"override", "--limit", "100/1h,5/1s", "--for", "24h", "--why", "ticket 4711", s.name, "key-7"}},
		{"override-block", 0, []string{"override", "--block", "--for", "1h", "--why", "it floods us", s.name, "198.51.100.7"}},
		{"override-unlimited", 0, []string{"override", "--unlimited", "--for", "7d", "--why", "load test", "--by", "bob", s.name, "key 8"}},
		{"overrides", 0, []string{"overrides", s.name}},
		{"overrides-json", 0, []string{"overrides", "--json", s.name}},
		{"inspect-override", 0, []string{"inspect", "--limit", "5/1h", s.name, "key-7"}},
		{"inspect-override-json", 3, []string{"inspect", "--json", s.name, "198.51.100.7"}},
		{"inspect-override-block", 3, []string{"inspect", "--limit", "5/1h", s.name, "198.51.100.7"}},
		{"inspect-override-unlimited", 0, []string{"inspect", s.name, "key 8"}},
		{"override-end", 0, []string{"override", "--end", s.name, "key-7"}},
		{"override-end-none", 4, []string{"override", "--end", s.name, "key-7"}},
	} {
		shown, status := overridden(t, s, step.args...)
		if status != step.status {
			t.Errorf("%s: status %d, not %d", step.golden, status, step.status)
		}
		checkGolden(t, filepath.Join("testdata", step.golden+".golden"), shown)
	}
	none := newService(t)
	if shown, status := overridden(t, none, "overrides", none.name); shown != "There is no override in login on 127.0.0.1:6379.\n" || status != 0 {
		t.Errorf("status %d, %s", status, shown)
	}
}

// TestOverridesPage compares docs/overrides.md with the output of the program.
func TestOverridesPage(t *testing.T) {
	page := text(t, "../../docs/overrides.md")
	for _, golden := range []string{"override", "overrides"} {
		shown := text(t, "testdata/"+golden+".golden")
		if indented := "    " + strings.ReplaceAll(strings.TrimSuffix(shown, "\n"), "\n", "\n    "); !strings.Contains(page, indented) {
			t.Errorf("docs/overrides.md does not show %s.golden", golden)
		}
	}
}

// TestOverrideBy checks who sets an override without --by: $USER, or nobody if that cannot be used.
func TestOverrideBy(t *testing.T) {
	s := newService(t)
	for user, want := range map[string]string{"ann": ", by ann: ", "": "until 15:00:00: ", strings.Repeat("x", 65): "until 15:00:00: "} {
		t.Setenv("USER", user)
		overridden(t, s, "override", "--block", "--for", "1h", "--why", "it floods us", s.name, "e")
		if shown, _ := overridden(t, s, "inspect", s.name, "e"); !strings.Contains(shown, want+"it floods us\n") {
			t.Errorf("USER=%s: %s", user, shown)
		}
		overridden(t, s, "override", "--end", s.name, "e")
	}
}

// TestOverrideEndHash checks that --end says what to write in place of a hash.
func TestOverrideEndHash(t *testing.T) {
	s := newService(t)
	shown, status := overridden(t, s, "override", "--end", s.name, "~E5sb")
	if want := "If that is a hash, write the event itself"; status != 4 || !strings.Contains(strings.Join(strings.Fields(shown), " "), want) {
		t.Errorf("status %d, %s", status, shown)
	}
}

// TestOverrideNextDash checks that the suggested command works if the name begins with a dash.
func TestOverrideNextDash(t *testing.T) {
	s := newService(t)
	s.name = "-" + s.name
	shown, _ := overridden(t, s, "override", "--block", "--for", "1h", "--why", "it floods us", "--", s.name, "e")
	if !strings.HasSuffix(shown, "\nnext: slidegate override --end -- login e\n") {
		t.Error(shown)
	}
	if shown, status := overridden(t, s, "override", "--end", "--", s.name, "e"); status != 0 {
		t.Error(shown)
	}
}

// TestOverrideNetwork checks that override and inspect name the network of a single IPv6 address.
func TestOverrideNetwork(t *testing.T) {
	s := newService(t)
	for _, args := range [][]string{{"inspect"}, {"override", "--block", "--for", "1h", "--why", "it floods us"}} {
		shown, _ := overridden(t, s, append(args, s.name, "2001:db8::1")...)
		if !strings.Contains(shown, "limit the network of this address: 2001:db8::/64.") {
			t.Error(shown)
		}
	}
}

// TestOverrideQuoted checks that no text in an override can control the terminal.
func TestOverrideQuoted(t *testing.T) {
	s := newService(t)
	for _, args := range [][]string{
		{"override", "--block", "--for", "1h", "--why", "\x1b[2J", "--by", "\x1b[1m", s.name, "\x1b[3m"},
		{"overrides", s.name},
		{"inspect", s.name, "\x1b[3m"},
	} {
		if shown, _ := overridden(t, s, args...); strings.Contains(shown, "\x1b") || !strings.Contains(shown, `\x1b[3m`) {
			t.Errorf("%q prints %q", args, shown)
		}
	}
}

// TestOverrideOfService checks that a service applies an override set by the command, even if its
// limiter has a Secret, so that the key does not contain the event.
func TestOverrideOfService(t *testing.T) {
	for _, secret := range []string{"", "a secret of 18 b.."} {
		s := newService(t)
		args := []string{"override", "--redis", redistest.Addr(t), "--block", "--for", "1h", "--why", "it floods us", "--by", "ann", s.name, "alice"}
		if secret != "" {
			s.secret = []byte(secret)
			args = append(args, "--secret-file", write(t, secret+"\n"))
		}
		if stdout, stderr, status := command(t.Context(), args...); status != 0 || stderr != "" || !strings.Contains(stdout, ": block until ") {
			t.Fatalf("status %d, %s%s", status, stdout, stderr)
		}
		l, err := window.New(window.On(s.client), window.Config{Name: s.name, Limits: parsed(t, "5/1h"), Secret: s.secret, Timeout: time.Minute, Overrides: true})
		for d := (window.Decision{}); err == nil && d.Override != window.OverrideBlock; {
			d, err = l.Peek(t.Context(), "alice")
		}
		if err != nil {
			t.Fatal(err)
		}
		if listed, _, _ := command(t.Context(), "overrides", "--redis", redistest.Addr(t), s.name); strings.Contains(listed, "alice") == (secret != "") || !strings.Contains(listed, "it floods us") {
			t.Error(listed)
		}
	}
}
