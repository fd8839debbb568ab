package proxyserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestWarnsOfReset checks that the log warns if a page with a Reset button can be reached from
// other machines.
func TestWarnsOfReset(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var log strings.Builder
		c := Command{AllowReset: true}
		c.logStart(slog.New(slog.NewTextHandler(&log, nil)), l)
		if strings.Contains(log.String(), "anyone who can reach --admin can reset counts") != want {
			t.Errorf("%s: %s", address, log.String())
		}
	}
}

// TestShadow checks that --shadow sets the proxy's Shadow, and that a log line at startup says so.
func TestShadow(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for shadow, want := range map[bool]int{false: 0, true: 1} {
		c := Command{To: flags.Upstream{URL: &url.URL{Scheme: "http", Host: "h"}}, Limits: flags.Limits{window.PerHour(5)}, Shadow: shadow}
		var text strings.Builder
		log := slog.New(slog.NewTextHandler(&text, nil))
		cfg, err := c.Config(log)
		c.logStart(log, listener)
		if lines := strings.Count(text.String(), "shadow: every request reaches the server"); err != nil || cfg.Shadow != shadow || lines != want {
			t.Errorf("%t: Shadow is %t, %v\n%s", shadow, cfg.Shadow, err, &text)
		}
	}
}

// TestLogHidesLogin checks that a log line does not contain the user whom a Redis error reply
// names.
func TestLogHidesLogin(t *testing.T) {
	var c Command
	if err := c.Redis.Add("redis://zebra:okapi@127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	for _, terminal := range []bool{false, true} {
		var text strings.Builder
		c.newLog(&text, terminal).Error("Redis does not answer", "err", errors.New("NOPERM User zebra has no permissions"))
		if !strings.HasSuffix(text.String(), ` msg="Redis does not answer" err="NOPERM User *** has no permissions"`+"\n") {
			t.Error(text.String())
		}
	}
}

// TestDialLogs checks that dial logs each distinct error once, logs the connection, and logs no
// error after ctx is done.
func TestDialLogs(t *testing.T) {
	var text strings.Builder
	failures, c := 0, Command{Name: "n", Outage: flags.Outage(httplimit.FailOpen)}
	dial := c.dial(slog.New(slog.NewTextHandler(&text, nil)), func() { failures++ })
	want, last := 0, ""
	for i, at := range []string{"127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:2"} {
		c.Redis.InitAddress = []string{at}
		_, err := dial(t.Context())
		if err == nil || failures != i+1 {
			t.Fatalf("%s: %v, %d failures", at, err, failures)
		}
		if err.Error() != last { // on a busy machine, there are timeouts too
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
