package adapter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/slidegate/slidegate/internal/adapter"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/window"
)

// TestJudge checks which errors count as an outage, in which FailOpen lets a call proceed: a
// network timeout counts, but errors that the caller causes do not.
func TestJudge(t *testing.T) {
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
			j, err := adapter.NewJudge("it", outage, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if got := j.Judge(test.ctx, test.err); got != nil == goesOn || got != nil && !errors.Is(got, test.err) {
				t.Errorf("%s, %s: %v", name, outage, got)
			}
		}
	}
}
