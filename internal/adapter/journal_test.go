package adapter_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/adapter"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/health"
)

// TestCause checks that the lines about an outage contain the limiter's name, the cause and the
// remedy, but not the request's key. An error that concerns a single key is logged each time, and
// does not hide the start of an outage.
func TestCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j adapter.Journal
		var text strings.Builder
		log := slog.New(slog.NewTextHandler(&text, nil))
		cause := fmt.Errorf("limiter: %w", &health.Failure{
			Name: "api", Key: "api:{secret}:w", Counted: health.ErrOutage, Cause: &connection.ReplyError{Cause: errors.New("NOPERM no permissions")},
		})
		for range 2 {
			j.Failed(log, "open", "call", errors.New("WRONGTYPE"))
		}
		j.Note(log, "open", true, cause)
		j.Note(log, "open", false, cause)
		<-time.After(time.Minute)
		j.Note(log, "open", false, nil)
		lines := strings.SplitAfter(text.String(), "\n")
		for i, parts := range [][]string{
			{"ERROR", "a call got no decision"},
			{"WRONGTYPE"},
			{"WARN", "Fallback decides", "limiter=api", "NOPERM", "~api:*"},
			{"ERROR", "cannot decide", "outage=open", "NOPERM", "~api:*"},
			{"INFO", "limiter=api", "decides again"},
		} {
			for _, part := range parts {
				if !strings.Contains(lines[i], part) {
					t.Errorf("%q lacks %q", lines[i], part)
				}
			}
		}
		if len(lines) != 6 || strings.Contains(text.String(), "secret") {
			t.Error(text.String())
		}
	})
}
