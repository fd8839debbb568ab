package redistest

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

// TestServer prints which server the tests use, and which features it lacks. `make test` runs it
// first. If SLIDEGATE_SERVER is set, for example to valkey-9.1, the server must be of that version.
func TestServer(t *testing.T) {
	got, err := sharedVersion()
	if err != nil || !strings.ContainsAny(got, "0123456789") {
		t.Errorf("version = %q, want a number; %v", got, err)
	}
	if want := os.Getenv("SLIDEGATE_SERVER"); !strings.HasPrefix(strings.ToLower(strings.Replace(got, " ", "-", 1))+".", want+".") && want != "" {
		t.Errorf("%s answers, want %s", got, want)
	}
	for _, f := range features {
		if f.lacks(got) {
			t.Logf("%s lacks %s: these tests are skipped", got, f.name)
		}
	}
	if _, _, err := net.SplitHostPort(Addr(t)); err != nil {
		t.Error(err)
	}
}

func TestLacks(t *testing.T) {
	for version, want := range map[string]bool{"Redis 6.0.16": true, "Redis 6.2.1": true, "Redis 7.0.15": false, "Redis 10.0.0": false, "Valkey 7.2.4": false} {
		if QuickMoves.lacks(version) != want {
			t.Errorf("%s lacks it: %v", version, !want)
		}
	}
	for version, want := range map[string]bool{"Redis 8.6.3": true, "Valkey 9.0.4": true, "Valkey 9.1.2": false, "Valkey 9.10.0": false, "Valkey 10.0.0": false, "unknown: EOF": false} {
		if LuaModule.lacks(version) != want {
			t.Errorf("%s lacks a module for Lua: %v", version, !want)
		}
	}
}

func TestKeysDiffer(t *testing.T) {
	fits := regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)
	a, b := Key(t), Key(t)
	if a == b || !strings.HasPrefix(a, "TestKeysDiffer-") {
		t.Errorf("keys %q and %q", a, b)
	}
	t.Run("ä name/with {braces} and "+strings.Repeat("x", 80), func(t *testing.T) {
		if k := Key(t); !fits.MatchString(k) {
			t.Errorf("key %q does not fit a limiter's name", k)
		}
	})
}

// hosts returns all hosts that this machine has: Docker and local processes pass the same tests.
func hosts(t *testing.T) []host {
	t.Helper()
	h, err := theHost()
	if err != nil {
		t.Fatal(err)
	}
	all := []host{h}
	if _, ok := h.(docker); !ok {
		return all
	}
	l, ok := findLocal(nil)
	if !ok {
		t.Log("no redis-server on the PATH: only Docker is tested")
		return all
	}
	return append(all, l)
}

// onHosts runs test with a new server on each host.
func onHosts(t *testing.T, test func(*testing.T, *Server)) {
	t.Helper()
	for _, h := range hosts(t) {
		t.Run(strings.TrimPrefix(fmt.Sprintf("%T", h), "redistest."), func(t *testing.T) {
			s, err := newServer(h, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.remove)
			test(t, s)
		})
	}
}

func TestFlags(t *testing.T) {
	c := Start(t, "--maxmemory", "10mb").Client(t)
	got, err := c.Do(t.Context(), c.B().ConfigGet().Parameter("maxmemory").Build()).AsStrMap()
	if err != nil || got["maxmemory"] != "10485760" {
		t.Errorf("maxmemory = %v, %v", got, err)
	}
}

func TestBadFlags(t *testing.T) {
	for _, h := range hosts(t) {
		if s, err := newServer(h, []string{"--no-such-flag", "1"}); err == nil {
			s.remove()
			t.Errorf("%s: started with a flag that does not exist", h)
		}
	}
}

// TestRemovePaused checks that a paused server can be removed.
func TestRemovePaused(t *testing.T) {
	onHosts(t, func(t *testing.T, s *Server) {
		s.Pause(t)
		s.remove()
		if c, err := net.Dial("tcp", s.Addr()); err == nil {
			c.Close()
			t.Error("a removed server accepts connections")
		}
	})
}

func TestCluster(t *testing.T) {
	c := Cluster(t)
	if n := len(c.Nodes()); n != masters {
		t.Errorf("%d nodes, want %d", n, masters)
	}
	for range 100 { // enough to reach every shard
		key := Key(t)
		if err := c.Do(t.Context(), c.B().Set().Key(key).Value("1").Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	for addr, node := range c.Nodes() {
		n, err := node.Do(t.Context(), node.B().Dbsize().Build()).AsInt64()
		if n == 0 || err != nil {
			t.Errorf("%s holds %d keys, %v", addr, n, err)
		}
	}
}
