package main

import (
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/window"
)

// windows are the rows of window.Limiter.
func windows(client rueidis.Client) []contender {
	row := limiterRow(func(limits []string, now func() time.Time) limiter {
		return must(window.New(client, window.Config{Name: "login", Limits: parse(limits), Now: now}))
	})
	return []contender{
		row(contender{name: "window, 1 limit", like: "50/1h: exact; the record holds 4 buckets, the event adds one", allows: true}, four, "50/1h"),
		row(contender{name: "window, 1 limit, wide", like: "1000/1h: buckets of a minute; the record holds 4, the event adds one", allows: true}, four, "1000/1h"),
		row(contender{name: "window, 3 limits", like: "1/5s, 50/1h, 200/1d: 0, 4 and 2 buckets, the event adds one to each", allows: true}, four, "1/5s", "50/1h", "200/1d"),
		row(contender{name: "window, 1 limit, denied", like: "4/1h: used up", beside: "window, 1 limit"}, four, "4/1h"),
		row(contender{name: "window, 3 limits, denied", like: "1/5s, 4/1h, 200/1d: the second is used up", beside: "window, 3 limits"}, four, "1/5s", "4/1h", "200/1d"),
		row(contender{name: "window, 1 limit, new", like: "50/1h: an event without a key", allows: true}, nil, "50/1h"),
		row(contender{name: "window, 3 limits, new", like: "1/5s, 50/1h, 200/1d: an event without a key", allows: true}, nil, "1/5s", "50/1h", "200/1d"),
	}
}
