package logs

import (
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/logtest"
)

// events returns all attempts in a log.
func events(tb testing.TB, r *Reader) (all []Attempt) {
	tb.Helper()
	for {
		a, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, a)
	}
}

const (
	// caddyLine comes from a Caddy access log, pinoLine from a log of Node's pino with other
	// fields, and ecsLine from a log in the Elastic Common Schema.
	caddyLine = `{"level":"info","ts":1741064767.089,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"2001:db8:1:2::a1","remote_port":"4022","proto":"HTTP/2.0","method":"POST","host":"example.org","uri":"/login","headers":{"User-Agent":["curl/8.5.0"]}},"user_id":"","duration":0.0012,"size":42,"status":401}`
	pinoLine  = `{"level":30,"time":1741064767089,"pid":7,"hostname":"web1","msg":"login","user":"alice"}`
	ecsLine   = `{"@timestamp":"2025-03-04T05:06:07.089Z","source.ip":"192.0.2.1","source":{"ip":"198.51.100.1"},"user":{"name":"alice"},"a|b":"pipe","#":"hash","*":"star","":"none"}`
)

// jsonBy returns a format whose time is in the field timeField.
func jsonBy(timeField string) *jsonLines { return &jsonLines{named{timeField: timeField}} }

var write, packed = logtest.Write, logtest.Packed

// by parses a value of the flag --by, or returns its default.
func by(tb testing.TB, flag string) By {
	tb.Helper()
	if flag == "" {
		return By{}
	}
	b, err := ParseBy(flag)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// same fails the test if two values differ.
func same(tb testing.TB, want, got any) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("(-want +got):\n%s", diff)
	}
}

const failed = " h sshd[1]: Failed password for root from 192.0.2.1 port 22 ssh2\n"

func checkAttempt(t *testing.T, line string, a Attempt) {
	t.Helper()
	if a.Event == "" || a.Units < 1 || a.Times < 1 || a.Times > 999999 || !inRange(a.At) {
		t.Errorf("%q asks for %v", line, a)
	}
}
