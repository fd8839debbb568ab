package redistest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// silent accepts connections and never answers, as a hung Docker does.
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
		"nobody listens":       "127.0.0.1:1",
		"accepts, and is mute": silent(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DOCKER_HOST", "tcp://"+addr)
			if h, err := findDocker(200 * time.Millisecond); err == nil {
				t.Errorf("found %v", h)
			}
		})
	}
}

func TestDockerRequired(t *testing.T) {
	t.Setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
	t.Setenv("SLIDEGATE_REQUIRE_DOCKER", "1")
	if h, err := pickHost(); err == nil {
		t.Errorf("took %v, though Docker was required", h)
	}
}

// TestNothingStaysBehind has a test binary die with a server of its own, and
// looks for that server and its directory.
func TestNothingStaysBehind(t *testing.T) {
	Addr(t) // brings a redis-server, where it takes one
	if _, ok := findLocal(nil); !ok {
		t.Skip("no redis-server on the PATH: containers are the reaper's work")
	}
	for _, way := range []string{"passes", "panics", "is killed"} {
		t.Run(way, func(t *testing.T) {
			dir := t.TempDir()
			pid := die(t, dir, way)
			late := time.Now().Add(10 * time.Second)
			for range time.Tick(10 * time.Millisecond) {
				if left(t, dir) == 0 && !runs(pid) {
					return
				}
				if time.Now().After(late) {
					t.Fatalf("%d directories, server runs: %v", left(t, dir), runs(pid))
				}
			}
		})
	}
}

// die runs TestDying in a test binary of its own, and returns its server's pid.
func die(t *testing.T, dir, way string) (pid string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDying$")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "REDISTEST_DIE="+way,
		"DOCKER_HOST=tcp://127.0.0.1:1", "SLIDEGATE_REQUIRE_DOCKER=0")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "pid ") {
	}
	if pid = strings.TrimPrefix(lines.Text(), "pid "); !runs(pid) || left(t, dir) == 0 {
		t.Errorf("no server with a directory to begin with: pid %q", pid)
	}
	if way == "is killed" {
		_ = cmd.Process.Kill()
	}
	_ = in.Close()
	for lines.Scan() {
	}
	if err := cmd.Wait(); (err == nil) != (way == "passes") {
		t.Errorf("the test binary: %v", err)
	}
	return pid
}

// TestDying is the test that TestNothingStaysBehind runs.
func TestDying(t *testing.T) {
	way := os.Getenv("REDISTEST_DIE")
	if way == "" {
		return
	}
	s := Start(t)
	fmt.Println("pid", s.node.(*process).pid)
	_, _ = io.ReadAll(os.Stdin)
	if way == "panics" {
		panic("as asked")
	}
}

func runs(pid string) bool { return signal("0", pid) == nil }

// left counts what is in dir.
func left(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
