package adapter

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/health"
)

// A state is what decides requests. Higher states are worse.
type state = int32

const (
	normal   state = iota
	degraded       // the Fallback decides
	failing        // nothing decides
)

// recoveryDelay is the time for which a state must not have occurred before a better state is
// logged. While one shard of a cluster is down and the others are up, both states alternate in
// quick succession.
const recoveryDelay = 5 * time.Second

// Journal logs changes of a limiter's state. The zero Journal is ready to use. It is safe for
// concurrent use.
type Journal struct {
	logged atomic.Int32
	mu     sync.Mutex
	seen   time.Time              // when the logged state last occurred
	name   atomic.Pointer[string] // of the limiter that did not answer
}

// change records that the state now has occurred. It reports whether to log it as a change.
func (j *Journal) change(now state) bool {
	if now == normal && j.logged.Load() == normal {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	logged := j.logged.Load()
	if now < logged && time.Since(j.seen) < recoveryDelay {
		return false
	}
	if now != normal {
		j.seen = time.Now()
	}
	j.logged.Store(now)
	return now != logged
}

// Note records what decided a request, and logs a change: the Fallback if byFallback is set,
// nothing if there is only a cause, and the limiter otherwise. The cause is why the limiter did not
// decide. The parameter outage is what happens to requests while nothing decides.
func (j *Journal) Note(log *slog.Logger, outage string, byFallback bool, cause error) {
	switch {
	case byFallback:
		if j.change(degraded) {
			j.with(log, cause).Warn("slidegate: the limiter's Fallback decides, by its own limits", "err", keyless(cause))
		}
	case cause != nil:
		if j.change(failing) {
			j.with(log, cause).Error("slidegate: the limiter cannot decide", "outage", outage, "err", keyless(cause))
		}
	case j.change(normal):
		j.with(log, nil).Info("slidegate: the limiter decides again")
	}
}

// ErrChoose is the error if Choose failed. It is treated like an outage, because it usually affects
// all calls.
var ErrChoose = errors.New("no limiter was found, because Choose failed")

// Failed records that a request or call, as about names it, got no decision because of err. The
// parameter outage is what happens to it. Failed logs an outage once, and an error that concerns a
// single key each time.
func (j *Journal) Failed(log *slog.Logger, outage, about string, err error) {
	if health.IsOutage(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrChoose) {
		j.Note(log, outage, false, err)
		return
	}
	log.Error("slidegate: a "+about+" got no decision", "outage", outage, "err", err)
}

// with adds the name of the limiter that is not answering, or was not.
func (j *Journal) with(log *slog.Logger, cause error) *slog.Logger {
	if failure := health.FailureIn(cause); failure != nil {
		j.name.Store(&failure.Name)
	}
	if name := j.name.Load(); name != nil {
		log = log.With("limiter", *name)
	}
	return log
}

// keyless returns cause without the request's key, because an outage concerns all keys.
func keyless(cause error) error {
	if failure := health.FailureIn(cause); failure != nil {
		return failure
	}
	return cause
}
