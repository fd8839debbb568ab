// Package audit attacks a rate limiter, and reports which faults its answers prove. The benchmark
// uses it to compare how exactly limiters keep a limit.
//
// Every fault is proven: no limiter that keeps the limit can give such answers, whatever the
// latency. The proof is in the comment on type evidence.
package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/window"
)

// Func makes one attempt, always on the same event key. It returns whether the attempt was allowed.
// If the attempt was denied, Func also returns how long to wait, or 0 if the limiter does not
// report a wait. Func must be safe for concurrent use.
type Func func(ctx context.Context) (allowed bool, retryAfter time.Duration, err error)

// Kind is a kind of fault.
type Kind string

// The kinds of faults that Run finds.
const (
	KindExcess       Kind = "excess"         // more than Max in a window
	KindRace         Kind = "race"           // more than Max in a window, but only with concurrent attempts
	KindNeedless     Kind = "needless"       // denied although the limit does not require it
	KindDeniedCount  Kind = "denied-count"   // denied attempts use up budget
	KindWaitTooShort Kind = "wait-too-short" // the next attempt after a wait was denied
	KindWaitTooLong  Kind = "wait-too-long"  // an attempt during a wait was allowed, or a wait is longer than the window
)

// Report represents the result of an audit.
type Report struct {
	Most      int           // the largest number of units that were certainly allowed in one window
	Denied    int           // attempts
	Needless  int           // denials that the limit does not require
	Waits     int           // denials that reported a wait
	TooLongBy time.Duration // the most by which a wait was longer than needed
	Found     []Kind
}

// mostFailures is the number of consecutive errors after which an audit ends.
const mostFailures = 5

// Run attacks a limiter that claims to keep l. Nobody else may use the event key, before or during
// the audit. Run takes about 20 times l.Per. It returns an error if ctx is done, or if the limiter
// keeps failing.
func Run(ctx context.Context, l window.Limit, attempt Func) (Report, error) {
	r, t := &runner{ctx: ctx, attempt: attempt, began: time.Now()}, newTarget(l)
	for _, a := range attacks {
		r.attack, r.end = a.name, r.end+a.takes(t)
		a.run(r, t)
		if r.fails >= mostFailures {
			return Report{}, fmt.Errorf("%d attempts in a row failed: %w", r.fails, r.failed)
		}
		if err := ctx.Err(); err != nil {
			return Report{}, fmt.Errorf("the audit was interrupted: %w", err)
		}
	}
	return newEvidence(l, r.log).report(), nil
}

// report returns what e proves. It omits a fault that merely follows from another fault.
func (e *evidence) report() Report {
	w := e.waits()
	needless, unexplained := e.needless()
	r := Report{Most: e.most(), Needless: len(needless), Waits: w.reported, TooLongBy: w.worst}
	for _, a := range e.log {
		if a.Answer == AnswerDenied {
			r.Denied++
		}
	}
	race := e.races()
	switch {
	case race:
		r.Found = append(r.Found, KindRace)
	case e.exceeds():
		r.Found = append(r.Found, KindExcess)
	}
	switch {
	case len(unexplained) > 0:
		r.Found = append(r.Found, KindNeedless)
	case len(needless) > 0:
		r.Found = append(r.Found, KindDeniedCount)
	}
	if race { // attempts that raced may have a budget of their own, with its own waits
		return r
	}
	if len(w.short) > 0 {
		r.Found = append(r.Found, KindWaitTooShort)
	}
	if len(w.long) > 0 || len(w.endless) > 0 && len(needless) == 0 { // a limiter that forgets too late also reports endless waits
		r.Found = append(r.Found, KindWaitTooLong)
	}
	return r
}
