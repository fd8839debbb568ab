// Package windowtest helps to test programs that use Slidegate. It creates limiters that deny, and
// connections to a Redis that is down, or whose replies are lost. No Redis is needed, and no call
// waits.
//
//	limiter := windowtest.DenyAfter(3)                                  // denies the fourth attempt on an event
//	limiter, err := window.New(windowtest.Down(), cfg)                  // ErrOutage; with a Fallback: Degraded
//	limiter, err := window.New(windowtest.Unanswered(), cfg)            // ErrUncertain
//	guard, err := login.New(windowtest.Down(), login.Config{ /* */ })   // also ar1, pace and inflight
//
// To control time, use window.NewLocal with a clock in Config.Now, or in a bubble of
// testing/synctest: https://github.com/slidegate/slidegate/blob/main/docs/testing.md.
package windowtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/pipeline"
	"github.com/slidegate/slidegate/window"
)

// DenyAfter returns a limiter in memory that allows n units of each event, and then denies for an
// hour: n is 1 to 10^12. To get a denial at the first attempt of a test, use up the units before.
//
// It panics if n is out of range.
func DenyAfter(n int64) *window.Limiter {
	l, err := window.NewLocal(window.Config{Name: "windowtest", Limits: []window.Limit{window.PerHour(n)}})
	if err != nil {
		panic(fmt.Errorf("windowtest.DenyAfter(%d): %w", n, err))
	}
	return l
}

// Down returns a Connection to a Redis that answers every call with an error. Limiters on it return
// errors that match window.ErrOutage, at once, and Observe receives an outage as it would in
// production. A Fallback, if set, decides. Redis never comes back.
func Down() *window.Connection { return connection(&pipeline.ReplyError{Cause: errDown}) }

// Unanswered returns a Connection that loses every reply. Attempts by limiters on it return errors
// that match window.ErrUncertain, at once. Calls that only read, such as Peek, return
// window.ErrOutage. However many fail, the circuit breaker stays closed. A Fallback, if set,
// decides.
func Unanswered() *window.Connection { return connection(pipeline.ErrOnPurpose) }

var errDown = errors.New("ERR this Redis is down on purpose: see windowtest.Down")

func connection(err error) *window.Connection {
	return (*window.Connection)(pipeline.On(failing{err}))
}

// failing is a client whose calls fail.
type failing struct{ err error }

// Send answers each call with the error.
func (f failing) Send(_ context.Context, calls []*pipeline.ScriptCall) {
	for _, c := range calls {
		c.Answer(nil, f.err)
	}
}

// Load returns the error.
func (f failing) Load(context.Context, string) (string, error) { return "", f.err }

// Get returns the error, for reads through the client's cache.
func (f failing) Get(context.Context, pipeline.Read, string, time.Duration) (pipeline.Copy, error) {
	return pipeline.Copy{}, f.err
}

// Close does nothing.
func (failing) Close() {}
