package proxyserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestWarns checks that the log warns at startup if a page with a Reset button can be reached from
// other machines, and if nothing is denied.
func TestWarns(t *testing.T) {
	const reset, shadow = "anyone who can reach --admin can reset counts", "shadow: every request reaches the server"
	for _, tt := range []struct {
		command       Command
		address       string
		reset, shadow bool
	}{
		{Command{AllowReset: true}, "127.0.0.1:0", false, false},
		{Command{AllowReset: true}, "0.0.0.0:0", true, false},
		{Command{Shadow: true}, "0.0.0.0:0", false, true},
	} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", tt.address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var log strings.Builder
		tt.command.logStart(slog.New(slog.NewTextHandler(&log, nil)), l)
		if text := log.String(); strings.Contains(text, reset) != tt.reset || strings.Contains(text, shadow) != tt.shadow {
			t.Errorf("%+v: %s", tt, text)
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
