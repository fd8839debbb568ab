// Package windowtest helps to test programs that use Slidegate. It creates limiters that deny, and
// connections to a Redis that is down or whose replies are lost. It needs no Redis, and no call
// waits.
//
//	limiter := windowtest.DenyAfter(3)                                  // denies the fourth attempt on an event
//	limiter, err := window.New(windowtest.Down(), cfg)                  // ErrOutage; with a Fallback: Degraded
//	limiter, err := window.New(windowtest.Unanswered(), cfg)            // ErrUncertain
//	guard, err := login.New(windowtest.Down(), login.Config{ /* */ })   // also ar1, pace and inflight
//
// To control time, use window.NewLocal either with a clock in Config.Now or within a
// testing/synctest bubble: https://github.com/slidegate/slidegate/blob/main/docs/testing.md.
package windowtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/window"
)

// DenyAfter returns a limiter in memory that allows n units of each event, and then denies for an
// hour. n is 1 to 10^12. If the first attempt of a test is to be denied, use up the units
// beforehand.
//
// It panics if n is out of range.
func DenyAfter(n int64) *window.Limiter {
	l, err := window.NewLocal(window.Config{Name: "windowtest", Limits: []window.Limit{window.PerHour(n)}})
	if err != nil {
		panic(fmt.Errorf("windowtest.DenyAfter(%d): %w", n, err))
	}
	return l
}

// Down returns a Connection to a Redis that answers every call with an error. Limiters on this
// Connection immediately return errors that match window.ErrOutage, unless they have a Fallback,
// which then decides. Observe receives the outage as it would in production. The outage never ends.
func Down() *window.Connection { return failsWith(&connection.ReplyError{Cause: errDown}) }

// Unanswered returns a Connection that loses every reply. Limiters on this Connection immediately
// return errors that match window.ErrUncertain for attempts, and window.ErrOutage for calls that
// only read, such as Peek. If a limiter has a Fallback, the Fallback decides instead. The circuit
// breaker stays closed, however many calls fail.
func Unanswered() *window.Connection { return failsWith(health.ErrOnPurpose) }

var errDown = errors.New("ERR this Redis is down on purpose: see windowtest.Down")

func failsWith(err error) *window.Connection {
	return (*window.Connection)(connection.On(failing{err}))
}

// failing is a client whose calls all fail with err.
type failing struct{ err error }

// Send answers each call with f.err.
func (f failing) Send(_ context.Context, calls []*connection.ScriptCall) {
	for _, c := range calls {
		c.Answer(nil, f.err)
	}
}

// Close does nothing.
func (failing) Close() {}
