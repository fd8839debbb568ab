// Package journal logs the begin and the end of a limiter's outages, each once.
package journal

import (
	"log/slog"
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

// Journal remembers what it logged of a limiter last. The zero Journal has logged nothing. It is safe for concurrent use.
type Journal struct {
	told atomic.Int32
	mu   sync.Mutex
	seen time.Time // when what was told was last so
}

// turn takes note of how a request was decided, and returns whether that is to be told.
func (j *Journal) turn(now state) bool {
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

// Note logs how a request was decided, if that is news. A nil err means that the limiter decided, or its Fallback if byFallback is set.
// The outage says what happens to requests while nothing decides.
func (j *Journal) Note(log *slog.Logger, outage string, byFallback bool, err error) {
	switch {
	case err != nil:
		if j.turn(out) {
			log.Error("slidegate: the limiter cannot decide about requests", "outage", outage, "err", err)
		}
	case byFallback:
		if j.turn(degraded) {
			log.Warn("slidegate: the limiter's Fallback decides about requests, by its own limits")
		}
	case j.turn(sound):
		log.Info("slidegate: the limiter decides about requests again")
	}
}
