package proxy

import (
	"sync"
	"time"
)

// hour counts what became of the requests of each route in each of the last 60 minutes. Its zero
// value has none.
type hour struct {
	mu      sync.Mutex
	minutes [60]minute // each at its number modulo 60
}

// minute is one of an hour.
type minute struct {
	number int64 // since 1970
	routes map[string]tally
}

// tally is what became of requests. In Shadow it is what would have become of them.
type tally struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
	Refused int64 `json:"refused"` // without a decision, or as nobody could decide
}

func (t tally) plus(u tally) tally {
	return tally{t.Allowed + u.Allowed, t.Denied + u.Denied, t.Refused + u.Refused}
}

// add counts a request.
func (h *hour) add(pattern, decision string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	number := now.Unix() / 60
	m := &h.minutes[number%60]
	if m.number != number {
		*m = minute{number, map[string]tally{}}
	}
	one := tally{Refused: 1}
	switch decision {
	case admitted:
		one = tally{Allowed: 1}
	case denied:
		one = tally{Denied: 1}
	}
	m.routes[pattern] = m.routes[pattern].plus(one)
}

// sums returns the requests of each minute, oldest first, and of each route.
func (h *hour) sums(now time.Time) (minutes [60]tally, routes map[string]tally) {
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
