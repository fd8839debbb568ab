package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/internal/test/tlstest"
)

// TestTLS runs each command with a Redis server that has a certificate from a private CA, requires
// a client certificate, and has a password. It names the required files by flags and by environment
// variables, and also omits the client certificate.
func TestTLS(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	cert, key := ca.Issue(t)
	address := ca.Start(t, "--requirepass", "okapi").Addr()
	password := tlstest.Write(t, "okapi\n")
	redis := []string{"--redis", "rediss://" + address, "--redis-ca", ca.File, "--redis-password-file", password}
	pair := []string{"--redis-cert", cert, "--redis-key", key}
	for _, tt := range []struct {
		command string
		status  int
		shows   string // the output with a certificate
		ends    int    // the exit status without a certificate
	}{
		{"inspect login e", 4, "--redis URL --redis-ca " + ca.File + " --redis-cert " + cert + " --redis-key " + key + " --redis-password-file " + password, 1},
		{"reset --yes login e", 0, "Nothing is stored", 1},
		{"replay", 0, "on Redis at " + address, 1},
		{"proxy --to http://127.0.0.1:1 --limit 5/1h --listen 127.0.0.1:0 --admin 127.0.0.1:0 --timeout 1m", 0, "budgets are shared", 0},
	} {
		args := append(strings.Fields(tt.command), redis...)
		if status, shown := runReady(t, append(args, pair...)); status != tt.status || !strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(shown, "\\\n", "")), " "), tt.shows) {
			t.Errorf("%s: status %d, %s", tt.command, status, shown)
		}
		want := "--redis " + address + ": it requires a certificate ("
		if status, shown := runReady(t, args); status != tt.ends || !strings.Contains(shown, want) || strings.Contains(shown, "okapi") {
			t.Errorf("%s: status %d, %s", tt.command, status, shown)
		}
	}
	for name, value := range map[string]string{"": "rediss://" + address, "_CA": ca.File, "_CERT": cert, "_KEY": key, "_PASSWORD_FILE": password} {
		t.Setenv("SLIDEGATE_REDIS"+name, value)
	}
	if stdout, stderr, status := command(t.Context(), "inspect", "login", "e"); status != 4 || strings.Contains(stdout, "--redis URL") {
		t.Errorf("by the environment: status %d, %s%s", status, stdout, stderr)
	}
	if _, stderr, status := command(t.Context(), "inspect", "--redis-ca", cert, "login", "e"); status != 1 || !strings.Contains(stderr, fmt.Sprintf("instead of %q", cert)) {
		t.Errorf("a flag and the environment: status %d, %s", status, stderr)
	}
	t.Setenv("SLIDEGATE_REDIS_CA", "none")
	if _, stderr, status := command(t.Context(), "replay"); status != 0 {
		t.Errorf("replay in memory: status %d, %s", status, stderr)
	}
}

// runReady runs a command until it ends or, for a proxy, until it is ready.
func runReady(t *testing.T, args []string) (status int, shown string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &untilReady{ready: cancel}
	status = run(ctx, args, cli.Streams{In: strings.NewReader(""), Out: out, Err: out})
	return status, out.String()
}
