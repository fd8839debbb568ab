// Package journal logs when a limiter's outages start and end, each once.
package journal

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/pipeline"
)

// A state says how the limiter decides. A higher one is worse.
type state = int32

const (
	normal   state = iota
	degraded       // its Fallback decides
	failing        // nothing decides
)

// recoveryDelay is how long a state must not occur before a better one is logged. While one shard
// of a cluster is down and the others are up, requests meet both states in quick succession.
const recoveryDelay = 5 * time.Second

// Journal remembers the state of a limiter that it logged last. The zero Journal has logged
// nothing. It is safe for concurrent use.
type Journal struct {
	logged atomic.Int32
	mu     sync.Mutex
	seen   time.Time              // when a request last met the logged state
	name   atomic.Pointer[string] // of the limiter that did not answer
}

// change records the state that a request met. It reports whether to log it as a change.
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

// Note records how a request was decided, and logs it if the state has changed: by the limiter, or
// by its Fallback if byFallback is set, or not. The cause is why the limiter did not decide. outage
// says what happens to requests while nothing decides.
func (j *Journal) Note(log *slog.Logger, outage string, byFallback bool, cause error) {
	switch {
	case byFallback:
		if j.change(degraded) {
			j.with(log, cause).Warn("slidegate: the limiter's Fallback decides about requests, by its own limits", "err", keyless(cause))
		}
	case cause != nil:
		if j.change(failing) {
			j.with(log, cause).Error("slidegate: the limiter cannot decide about requests", "outage", outage, "err", keyless(cause))
		}
	case j.change(normal):
		j.with(log, nil).Info("slidegate: the limiter decides about requests again")
	}
}

// ErrChoose is the error of a Choose that failed: usually for all calls, like an outage.
var ErrChoose = errors.New("no limiter was found, because Choose failed")

// Failed records that no limiter decided on a "request" or a "call". outage says what happens to
// it. It logs an outage once, and an error of a single key each time.
func (j *Journal) Failed(log *slog.Logger, outage, about string, err error) {
	if pipeline.IsOutage(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrChoose) {
		j.Note(log, outage, false, err)
		return
	}
	log.Error("slidegate: the limiter cannot decide about a "+about, "outage", outage, "err", err)
}

// with adds the name of the limiter that does not, or did not, answer.
func (j *Journal) with(log *slog.Logger, cause error) *slog.Logger {
	if failure := pipeline.FailureIn(cause); failure != nil {
		j.name.Store(&failure.Name)
	}
	if name := j.name.Load(); name != nil {
		log = log.With("limiter", *name)
	}
	return log
}

// keyless returns the cause without the key of a request, because an outage concerns all keys.
func keyless(cause error) error {
	if failure := pipeline.FailureIn(cause); failure != nil {
		return failure
	}
	return cause
}
