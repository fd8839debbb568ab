package adapter_test

import (
	"context"
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
	"github.com/slidegate/slidegate/window"
)

// TestOutageLog checks that the lines about an outage contain the limiter's name, the cause and the
// remedy, but not the request's key. An error that concerns a single key is logged each time, and
// does not hide the start of an outage.
func TestOutageLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		o := adapter.Outages{Outage: "open", Request: "call", Log: slog.New(slog.NewTextHandler(&text, nil))}
		cause := fmt.Errorf("limiter: %w", &health.Failure{
			Name: "api", Key: "api:{secret}:w", Counted: health.ErrOutage, Cause: &connection.ReplyError{Cause: errors.New("NOPERM no permissions")},
		})
		for range 2 {
			o.Fail(errors.New("WRONGTYPE"))
		}
		o.Record(true, cause)
		o.Record(false, cause)
		<-time.After(time.Minute)
		o.Record(false, nil)
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

// TestTolerate checks which errors count as an outage, in which FailOpen lets a request proceed: a
// network timeout counts, but errors that the caller causes do not.
func TestTolerate(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	timeout := fmt.Errorf("%w: %w", health.ErrOutage, context.DeadlineExceeded)
	for name, test := range map[string]struct {
		ctx    context.Context
		err    error
		goesOn bool
	}{
		"an answer":           {t.Context(), nil, true},
		"an outage":           {t.Context(), health.ErrUncertain, true},
		"a timeout":           {t.Context(), timeout, true},
		"a wrong value":       {t.Context(), errors.New("a wrong value"), true},
		"the caller has left": {gone, timeout, false},
		"the turn is late":    {t.Context(), context.DeadlineExceeded, false},
		"no event":            {t.Context(), window.ErrEmptyEvent, false},
	} {
		for outage, goesOn := range map[string]bool{"open": test.goesOn, "closed": test.err == nil} {
			o := adapter.Outages{Outage: outage, Request: "call", Log: slog.New(slog.DiscardHandler)}
			if got := o.Tolerate(test.ctx, test.err); got != nil == goesOn || got != nil && !errors.Is(got, test.err) {
				t.Errorf("%s, %s: %v", name, outage, got)
			}
		}
	}
}
