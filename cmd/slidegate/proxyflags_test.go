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
)

// TestLoop checks that the proxy does not start if it would send requests to itself.
func TestLoop(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	_ = free.Close()
	for _, tt := range [][2]string{{"127.0.0.1:", "127.0.0.1:"}, {":", "localhost:"}, {":", "127.0.0.2:"}, {"127.0.0.1:", "0.0.0.0:"}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // otherwise it would serve forever
		args := []string{"proxy", "--limit", "1/1s", "--listen", tt[0] + port, "--admin", "127.0.0.1:0", "--to", "http://" + tt[1] + port + "/x"}
		_, stderr, status := command(ctx, args...)
		cancel()
		if want := "slidegate: --to http://" + tt[1] + port + "/x is where the proxy itself listens; name the server, or another --listen\n"; status != 1 || stderr != want {
			t.Errorf("%s: status %d, %s", strings.Join(args, " "), status, stderr)
		}
	}
}

// TestConfig compares the configuration with the flags, both given and default.
func TestConfig(t *testing.T) {
	var line commandLine
	secret := write(t, "0123456789abcdef\n")
	k, err := kong.New(&line)
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Parse([]string{
		"proxy", "--to", "http://h/x", "--limit", "5/1h", "--by", "header:K", "--route", "/x 1/1h", "--route", "/y 1/1h by all", "--route", "/z 1/1h by address",
		"--behind", "10.0.0.0/8", "--behind", "192.0.2.1", "--redis", "127.0.0.1:1", "--name", "n", "--secret-file", secret, "--shadow",
	})
	if err != nil {
		t.Fatal(err)
	}
	server := line.Proxy
	cfg, err := server.Config(slog.New(slog.DiscardHandler))
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
	got := fmt.Sprintln(cfg.To, cfg.Behind, cfg.Name, string(cfg.Secret), server.Redis, cfg.Timeout, cfg.Outage, cfg.Shadow)
	if want := "http://h/x [10.0.0.0/8 192.0.2.1/32] n 0123456789abcdef 127.0.0.1:1 500ms local true"; got != want+"\n" {
		t.Errorf("%s, not %s", got, want)
	}
}
