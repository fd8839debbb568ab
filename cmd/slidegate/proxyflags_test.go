package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/proxy"
	"github.com/slidegate/slidegate/internal/redistest"
)

// TestProxyWarnsOfReset: whoever serves a page with a Reset to others learns it.
func TestProxyWarnsOfReset(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var log strings.Builder
		c := proxyCommand{AllowReset: true}
		c.begin(slog.New(slog.NewTextHandler(&log, nil)), l, l)
		if strings.Contains(log.String(), "everybody who reaches --admin can have counts forgotten") != want {
			t.Errorf("%s: %s", address, log.String())
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

// TestConfig: what the flags say, and what they do not.
func TestConfig(t *testing.T) {
	var line commandLine
	secret := write(t, "0123456789abcdef\n")
	k, err := kong.New(&line)
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Parse([]string{
		"proxy", "--to", "http://h/x", "--limit", "5/1h", "--by", "header:K", "--route", "/x 1/1h", "--route", "/y 1/1h by all", "--route", "/z 1/1h by address",
		"--behind", "10.0.0.0/8", "--behind", "192.0.2.1", "--redis", "127.0.0.1:1", "--name", "n", "--secret-file", secret,
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := line.Proxy.config(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r := &http.Request{RemoteAddr: "10.1.2.3:4", Header: http.Header{"K": {"me"}, "X-Forwarded-For": {"198.51.100.7"}}}
	var keys []string
	for _, rt := range cfg.Routes {
		keys = append(keys, rt.Pattern+" "+rt.Limits[0].String()+" "+rt.Key(r))
	}
	if diff := cmp.Diff([]string{"/x 1/1h header K me", "/y 1/1h all", "/z 1/1h 198.51.100.7", "/ 5/1h header K me"}, keys); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	got := fmt.Sprintln(cfg.To, cfg.Behind, cfg.Name, string(cfg.Secret), line.Proxy.shared(), cfg.Timeout, cfg.Outage)
	if want := "http://h/x [10.0.0.0/8 192.0.2.1/32] n 0123456789abcdef true 500ms local"; got != want+"\n" {
		t.Errorf("%s, not %s", got, want)
	}
}

// TestShadowFlag: --shadow reaches the proxy, and one line at the start says so.
func TestShadowFlag(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, extra := range [][]string{{}, {"--shadow"}} {
		var line commandLine
		k, err := kong.New(&line)
		if err == nil {
			_, err = k.Parse(append([]string{"proxy", "--to", "http://h", "--limit", "5/1h"}, extra...))
		}
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		log := slog.New(slog.NewTextHandler(&text, nil))
		cfg, err := line.Proxy.config(log)
		line.Proxy.begin(log, listener, listener)
		if lines := strings.Count(text.String(), "shadow: every request reaches the server"); err != nil || cfg.Shadow != (len(extra) == 1) || lines != len(extra) {
			t.Errorf("%v: Shadow is %t, %v\n%s", extra, cfg.Shadow, err, &text)
		}
	}
}

// TestDialLogs each different error once, and the connection; but no error after the end.
func TestDialLogs(t *testing.T) {
	var text strings.Builder
	failures, c := 0, proxyCommand{Name: "n", Outage: flags.Outage(proxy.Open)}
	dial := c.dial(slog.New(slog.NewTextHandler(&text, nil)), func() { failures++ })
	want, last := 0, ""
	for i, at := range []string{"127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:2"} {
		c.Redis.InitAddress = []string{at}
		_, err := dial(t.Context())
		if err == nil || failures != i+1 {
			t.Fatalf("%s: %v, %d failures", at, err, failures)
		}
		if err.Error() != last { // a busy machine has timeouts, too
			want, last = want+1, err.Error()
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	c.Redis.InitAddress = []string{"127.0.0.1:3"}
	if _, err := dial(ended); err == nil || failures != 5 {
		t.Errorf("after the end: %v, %d failures", err, failures)
	}
	if lines := strings.Count(text.String(), ` meanwhile=open "again every"=1s`); lines != want || strings.Count(text.String(), "\n") != want {
		t.Errorf("%d lines, not %d\n%s", lines, want, &text)
	}
	c.Redis.InitAddress = []string{redistest.Addr(t)}
	client, err := dial(t.Context())
	for err != nil {
		client, err = dial(t.Context())
	}
	client.Close()
	if !strings.HasSuffix(text.String(), ` msg="budgets are shared" redis=`+redistest.Addr(t)+" name=n\n") {
		t.Error(&text)
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
