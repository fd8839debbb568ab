package adapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/window"
)

const (
	failOpen   = "open"
	failClosed = "closed"
)

// A Judge decides whether a call may proceed if its limiter does not answer, and logs outages. It
// is safe for concurrent use.
type Judge struct {
	outage  string
	log     *slog.Logger
	outages Journal
}

// NewJudge returns a Judge for the Outage and the Log of a configuration. Its error names the
// configured type, which is name.
func NewJudge(name, outage string, log *slog.Logger) (*Judge, error) {
	if outage != failOpen && outage != failClosed {
		return nil, fmt.Errorf("slidegate: %s has the Outage %q; choose %q to let calls pass while a limiter gives no answer, or %q to refuse them", name, outage, failOpen, failClosed)
	}
	return &Judge{outage: outage, log: cmp.Or(log, slog.Default())}, nil
}

// Judge returns nil if the call may proceed, given the limiter's error err. Otherwise it returns
// err. It checks for an outage before it checks for a deadline, because a network timeout also
// matches context.DeadlineExceeded.
func (j *Judge) Judge(ctx context.Context, err error) error {
	isOutage := health.IsOutage(err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, !isOutage && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, window.ErrEmptyEvent)):
		return err // the error concerns the call, not Redis
	}
	j.Log(err)
	if j.outage == failOpen {
		return nil
	}
	return err
}

// Answered records that the limiter or, because of the given cause, its Fallback decided.
func (j *Judge) Answered(byFallback bool, cause error) {
	j.outages.Note(j.log, j.outage, byFallback, cause)
}

// Log logs an outage once, and an error that concerns a single key each time.
func (j *Judge) Log(err error) {
	j.outages.Failed(j.log, j.outage, "call", err)
}
