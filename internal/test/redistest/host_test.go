package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// silent returns the address of a listener that accepts connections and never answers, like a
// Docker daemon that hangs.
func silent(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func TestNoDocker(t *testing.T) {
	for name, addr := range map[string]string{
		"no server listens":          "127.0.0.1:1",
		"accepts, but never answers": silent(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DOCKER_HOST", "tcp://"+addr)
			t.Setenv("SLIDEGATE_DOCKER", "")
			if h, err := findDocker(200 * time.Millisecond); err == nil {
				t.Errorf("found %v", h)
			}
		})
	}
}

func TestDockerRequired(t *testing.T) {
	t.Setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
	t.Setenv("SLIDEGATE_DOCKER", "1")
	if h, err := pickHost(); err == nil {
		t.Errorf("took %v, although Docker was required", h)
	}
}

func TestDockerForbidden(t *testing.T) {
	t.Setenv("SLIDEGATE_DOCKER", "0")
	if h, err := findDocker(dockerLimit); !errors.Is(err, errNoDocker) {
		t.Errorf("found %v, %v, though Docker was forbidden", h, err)
	}
}

// TestInstalls checks that nothing is installed unless SLIDEGATE_INSTALL allows it, and that a test
// that gets no server reports what to do.
func TestInstalls(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may install")
	}
	for _, allowed := range []bool{false, true} {
		bin := t.TempDir()
		asked := filepath.Join(bin, "asked")
		for name, script := range map[string]string{"flock": "touch " + asked, "apt-get": "exit 1"} {
			if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\nPATH=/usr/bin:/bin\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // it is run
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", bin)
		t.Setenv("SLIDEGATE_DOCKER", "")
		t.Setenv("SLIDEGATE_INSTALL", strconv.Itoa(map[bool]int{true: 1}[allowed]))
		_, err := pickHost()
		if err == nil || !strings.Contains(err.Error(), "install redis-server or valkey-server") {
			t.Errorf("without any server: %v", err)
		}
		if _, missing := os.Stat(asked); (missing == nil) != allowed {
			t.Errorf("allowed to install: %t; asked apt-get: %t", allowed, missing == nil)
		}
	}
}

// TestExplainsOnce checks that only one test explains why there is no server and what to do.
func TestExplainsOnce(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLoseReply$", "-test.count=4")
	cmd.Env = append(os.Environ(), "PATH="+t.TempDir(), "SLIDEGATE_DOCKER=0", "SLIDEGATE_INSTALL=0")
	out, err := cmd.Output()
	if err == nil {
		t.Error("without any server, the tests pass")
	}
	for text, want := range map[string]int{
		"--- FAIL":                              4,
		errNoServer.Error() + ": ":              4,
		"install redis-server or valkey-server": 1,
		"another test that failed says why":     3,
	} {
		if got := strings.Count(string(out), text); got != want {
			t.Errorf("%d times %q, want %d:\n%s", got, text, want, out)
		}
	}
}

// TestNothingStaysBehind makes a test binary that runs a server die, and checks that neither the
// server nor its directory remains.
func TestNothingStaysBehind(t *testing.T) {
	Addr(t) // fails if there is no server at all
	if _, ok := findLocal(nil); !ok {
		t.Skip("no redis-server on the PATH")
	}
	dieEachWay(t, 2, func(dir, pid string) (remains int) {
		if runs(pid) {
			remains = 1
		}
		return remains + left(t, dir)
	}, "SLIDEGATE_DOCKER=0")
}

// TestNoContainerStaysBehind is like TestNothingStaysBehind, with Docker. It checks that nothing
// listens on the server's port.
func TestNoContainerStaysBehind(t *testing.T) {
	h, err := theHost()
	if _, ok := h.(docker); !ok {
		t.Skipf("servers do not run in Docker: %v, %v", h, err)
	}
	dieEachWay(t, 1, func(_, addr string) int {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return 0
		}
		c.Close()
		return 1
	})
}

// dieEachWay runs test binaries that die in various ways. The function remains counts what is left
// of a binary's server and in its directory for temporary files: that is alive at first, and must
// soon become 0.
func dieEachWay(t *testing.T, alive int, remains func(dir, server string) int, env ...string) {
	t.Helper()
	for _, way := range []string{"passes", "panics", "is killed"} {
		t.Run(way, func(t *testing.T) {
			dir := t.TempDir()
			server := die(t, way, append(env, "TMPDIR="+dir), func(server string) {
				if n := remains(dir, server); n != alive {
					t.Errorf("%d things at first, want %d", n, alive)
				}
			})
			late := time.Now().Add(time.Minute)
			for range time.Tick(10 * time.Millisecond) {
				n := remains(dir, server)
				if n == 0 {
					return
				}
				if time.Now().After(late) {
					t.Fatalf("%d things remain", n)
				}
			}
		})
	}
}

// die runs TestDying in another test binary. It returns the pid of that binary's server or, with
// Docker, the server's address.
func die(t *testing.T, way string, env []string, before func(server string)) (server string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // so that a hang is reported here
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestDying$")
	cmd.Env = append(append(os.Environ(), "REDISTEST_DIE="+way), env...)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "server ") {
	}
	server = strings.TrimPrefix(lines.Text(), "server ")
	before(server)
	if way == "is killed" {
		_ = cmd.Process.Kill()
	}
	_ = in.Close()
	for lines.Scan() {
	}
	if err := cmd.Wait(); (err == nil) != (way == "passes") {
		t.Errorf("the test binary: %v", err)
	}
	return server
}

// TestDying starts a server and dies, if it is run by die.
func TestDying(t *testing.T) {
	way := os.Getenv("REDISTEST_DIE")
	if way == "" {
		return
	}
	s := Start(t)
	server := s.Addr()
	if p, ok := s.node.(*process); ok {
		server = p.pid
	}
	fmt.Println("server", server)
	_, _ = io.ReadAll(os.Stdin)
	if way == "panics" {
		panic("as asked")
	}
}

func runs(pid string) bool { return signal("0", pid) == nil }

// left counts the entries of dir.
func left(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestProgramIsMissing checks the error if a test needs a missing program that it is not allowed to
// install.
func TestProgramIsMissing(t *testing.T) {
	t.Setenv("SLIDEGATE_INSTALL", "0")
	const name = "slidegate-no-such-program"
	path, err := findOrInstall(name, func() (string, bool) { return findProgram([]string{name}) }, name)
	if !errors.Is(err, errForbidden) {
		t.Errorf("%q, %v", path, err)
	}
}
