package main

import (
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/window"
)

// levelMaker returns a maker that creates ar1 limiters.
func levelMaker(client rueidis.Client) maker {
	return func(limits []string, now func() time.Time) ask {
		cfg := ar1.Config{Name: "login", Limits: parse(limits), Timeout: patience, Now: now}
		for i := range cfg.Limits {
			cfg.Limits[i].Resolution = 0
		}
		return asking(must(ar1.New(window.On(client), cfg)))
	}
}

// levels returns the ar1 rows of the server part.
func levels(client rueidis.Client) []contender {
	row := limiterRow(levelMaker(client))
	return []contender{
		row(contender{name: "ar1", like: "50/1h: four counted before", beside: "window", allows: true}, four, "50/1h"),
		row(contender{name: "ar1, 3 limits", like: "1/5s, 50/1h, 200/1d: four counted before", beside: "window, 3 limits", allows: true},
			four, "1/5s", "50/1h", "200/1d"),
		row(contender{name: "ar1, denied", like: "1/1h: used up", beside: "ar1"}, once, "1/1h"),
		row(contender{name: "ar1, 3 limits, denied", like: "1/30m, 1/1h, 200/1d: the first two are used up", beside: "ar1, 3 limits"},
			once, "1/30m", "1/1h", "200/1d"),
		row(contender{name: "ar1, new", like: "50/1h: an event without a key", beside: "window, new", allows: true}, nil, "50/1h"),
		row(contender{name: "ar1, 3 limits, new", like: "1/5s, 50/1h, 200/1d: an event without a key", beside: "window, 3 limits, new", allows: true},
			nil, "1/5s", "50/1h", "200/1d"),
	}
}
