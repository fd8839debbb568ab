package main

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestOneValue: who says twice who he is, is nobody, as the server could go by the other.
func TestOneValue(t *testing.T) {
	for _, tt := range []struct {
		by     string
		header http.Header
		want   string
	}{
		{"header:x-api-key", http.Header{"X-Api-Key": {"a"}}, "header X-Api-Key a"},
		{"header:X-Api-Key", http.Header{"X-Api-Key": {"a", "b"}}, ""},
		{"header:X-Api-Key", http.Header{"X-Api-Key": {"a", ""}}, ""},
		{"cookie:id", http.Header{"Cookie": {"x=y; id=a"}}, "cookie id a"},
		{"cookie:id", http.Header{"Cookie": {"id=a; id=b"}}, ""},
		{"cookie:id", http.Header{"Cookie": {"id=a", "id=a"}}, ""},
	} {
		var w who
		if err := w.read(tt.by); err != nil {
			t.Fatal(err)
		}
		if got := w.key(&http.Request{Header: tt.header}); got != tt.want {
			t.Errorf("%s of %v: %q, not %q", tt.by, tt.header, got, tt.want)
		}
	}
}

// TestLoop: the proxy does not start where it would send requests to itself.
func TestLoop(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	_ = free.Close()
	for _, tt := range [][2]string{{"127.0.0.1:", "127.0.0.1:"}, {":", "localhost:"}, {":", "127.0.0.2:"}, {"127.0.0.1:", "0.0.0.0:"}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it would serve for ever
		args := []string{"proxy", "--limit", "1/1s", "--listen", tt[0] + port, "--admin", "127.0.0.1:0", "--to", "http://" + tt[1] + port + "/x"}
		_, stderr, status := command(ctx, args...)
		cancel()
		if want := "slidegate: --to http://" + tt[1] + port + "/x is where the proxy itself listens; name the server, or another --listen\n"; status != 1 || stderr != want {
			t.Errorf("%s: status %d, %s", strings.Join(args, " "), status, stderr)
		}
	}
}

// TestRedisOfTheEnvironment: whoever writes no --redis has the one of SLIDEGATE_REDIS, which the list of processes does not show; but for replay, which decides in memory then.
func TestRedisOfTheEnvironment(t *testing.T) {
	t.Setenv("SLIDEGATE_REDIS", "redis://:secret@127.0.0.1:1")
	if _, stderr, status := command(t.Context(), "inspect", "login", "e"); status != 1 || !strings.HasPrefix(stderr, "slidegate: --redis 127.0.0.1:1: no Redis") {
		t.Errorf("status %d, %s", status, stderr)
	}
	if _, stderr, status := command(t.Context(), "inspect", "--redis", "127.0.0.1:2", "login", "e"); status != 1 || !strings.HasPrefix(stderr, "slidegate: --redis 127.0.0.1:2: no Redis") {
		t.Errorf("status %d, %s", status, stderr)
	}
	if _, stderr, status := command(t.Context(), "replay"); status != 0 {
		t.Errorf("status %d, %s", status, stderr)
	}
}
