package httplimit

import (
	"sync"
	"sync/atomic"
	"time"
)

// A state is how the limiter decides. A higher one is worse.
type state = int32

const (
	sound    state = iota
	degraded       // by its Fallback
	out            // not at all
)

// calm is how long a state is not seen before a better one is told: while one shard of a cluster is out and the others are not, requests take turns.
const calm = 5 * time.Second

// journal is what was told of the limiter.
type journal struct {
	told atomic.Int32
	mu   sync.Mutex
	seen time.Time // when what was told was last so
}

// turn takes note of how a request was decided, and returns whether that is to be told.
func (j *journal) turn(now state) bool {
	if now == sound && j.told.Load() == sound {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	told := j.told.Load()
	if now < told && time.Since(j.seen) < calm {
		return false
	}
	if now != sound {
		j.seen = time.Now()
	}
	j.told.Store(now)
	return now != told
}

// note tells of the begin and the end of an outage, and of a Fallback's reign.
func (m *Middleware) note(byFallback bool, err error) {
	switch {
	case err != nil:
		if m.state.turn(out) {
			m.cfg.Log.Error("slidegate: the limiter cannot decide about requests", "outage", m.cfg.Outage, "err", err)
		}
	case byFallback:
		if m.state.turn(degraded) {
			m.cfg.Log.Warn("slidegate: the limiter's Fallback decides about requests, by its own limits")
		}
	case m.state.turn(sound):
		m.cfg.Log.Info("slidegate: the limiter decides about requests again")
	}
}
