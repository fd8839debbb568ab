package proxy

import (
	"sync"
	"time"
)

// hourlyTally counts, for each route and each of the last 60 minutes, the outcomes of requests. The
// zero value is ready to use.
type hourlyTally struct {
	mu      sync.Mutex
	minutes [60]minute // each at its number modulo 60
}

// minute holds the counts of one minute.
type minute struct {
	number int64 // minutes since 1970
	routes map[string]tally
}

// tally counts requests by outcome. In shadow mode, the outcome is what it would be without shadow
// mode.
type tally struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
	Refused int64 `json:"refused"` // no decision could be made
}

func (t tally) plus(u tally) tally {
	return tally{t.Allowed + u.Allowed, t.Denied + u.Denied, t.Refused + u.Refused}
}

// add counts a request.
func (h *hourlyTally) add(pattern, decision string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	number := now.Unix() / 60
	m := &h.minutes[number%60]
	if m.number != number {
		*m = minute{number, map[string]tally{}}
	}
	one := tally{Refused: 1}
	switch decision {
	case allowed:
		one = tally{Allowed: 1}
	case denied:
		one = tally{Denied: 1}
	}
	m.routes[pattern] = m.routes[pattern].plus(one)
}

// sums returns the number of requests by minute, oldest first, and by route.
func (h *hourlyTally) sums(now time.Time) (minutes [60]tally, routes map[string]tally) {
	h.mu.Lock()
	defer h.mu.Unlock()
	routes = map[string]tally{}
	for i := range minutes {
		number := now.Unix()/60 - 59 + int64(i)
		m := &h.minutes[number%60]
		if m.number != number {
			continue
		}
		for pattern, t := range m.routes {
			minutes[i], routes[pattern] = minutes[i].plus(t), routes[pattern].plus(t)
		}
	}
	return minutes, routes
}
