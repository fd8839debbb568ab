package repotest

import (
	"bytes"
	"context"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

const quickstart = "docs/quickstart.md"

// TestQuickstart runs the program in docs/quickstart.md, and checks that its responses to the first
// request and to one request too many are those on the page.
func TestQuickstart(t *testing.T) {
	if testing.Short() {
		t.Skip("compiling and linking it takes seconds")
	}
	p := startQuickstart(t, redistest.Start(t).Addr(), "cfg.Timeout = time.Minute") // the machine may be busy
	first := p.curl(t)
	for range 4 {
		p.curl(t)
	}
	if diff := cmp.Diff(blocks(t, "http"), []string{anyTime(first), anyTime(p.curl(t))}); diff != "" {
		t.Errorf("%s (-the page +the program)\n%s", quickstart, diff)
	}
}

// TestQuickstartWithoutRedis runs the program while Redis is down, and checks that it keeps running
// and logs the line on the page once.
func TestQuickstartWithoutRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("compiling and linking it takes seconds")
	}
	redis := redistest.Start(t)
	redis.Kill(t)
	p := startQuickstart(t, redis.Addr(), "")
	for range 2 {
		if got := p.curl(t); !strings.HasPrefix(got, "HTTP/1.1 200 OK\n") {
			t.Error(got)
		}
	}
	before, _, _ := strings.Cut(blocks(t, "text")[0], " err=")
	_, line, _ := strings.Cut(before, " WARN ")
	if log := p.stop(); line == "" || strings.Count(log, line) != 1 {
		t.Errorf("%s has the line %q, and the log\n%s", quickstart, line, log)
	}
}

// A running is the running program.
type running struct {
	cmd     *exec.Cmd
	log     *bytes.Buffer // complete once the program has stopped
	address string
}

// startQuickstart starts the program on the page with an additional statement, and waits until the
// program listens.
func startQuickstart(t *testing.T, redis, statement string) running {
	t.Helper()
	p, address := newCopies(t), freeAddress(t)
	const fallback = "cfg.Fallback = local\n"
	text := strings.NewReplacer(exampleRedis, redis, "127.0.0.1:8080", address, fallback, fallback+statement+"\n").Replace(goBlocks(t, quickstart)[0])
	p.write(t, "quickstart/main.go", text)
	p.run(t, "vet", "-mod=mod", "./quickstart")
	p.run(t, "build", "-mod=mod", "-o", "program", "./quickstart")

	r := running{exec.CommandContext(t.Context(), filepath.Join(string(p), "program")), new(bytes.Buffer), address}
	r.cmd.Stderr = r.log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.stop() })
	awaitListener(t, address)
	return r
}

// stop stops the program, and returns its log.
func (r running) stop() string {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
	return r.log.String()
}

// freeAddress returns an address at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// awaitListener waits until a program listens at address, for up to a minute.
func awaitListener(t *testing.T, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("after a minute: %v", err)
		}
	}
}

// curl returns the output of `curl -i` for /hello.
func (r running) curl(t *testing.T) string {
	t.Helper()
	conn, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(conn, "GET /hello HTTP/1.1\r\nHost: "+r.address+"\r\nConnection: close\r\n\r\n")
	response, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(strings.ReplaceAll(string(response), "\r\n", "\n"), "Connection: close\n", "")
}

// blocks returns the page's code blocks in the given language, after anyTime.
func blocks(t *testing.T, language string) (all []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?\n)```\n").FindAllStringSubmatch(text(t, root+"/"+quickstart), -1) {
		all = append(all, anyTime(m[1]))
	}
	return all
}

// anyTime replaces the parts of a response that depend on the time.
func anyTime(response string) string {
	return regexp.MustCompile(`(?m)(^Date: |;t=|^Retry-After: ).*$`).ReplaceAllString(response, "${1}any")
}
