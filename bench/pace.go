package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// paceMaker returns a maker of limiters of pace. Each decision books a turn.
func paceMaker(client rueidis.Client) maker {
	return func(limits []string, now func() time.Time) ask {
		l := must(pace.New(window.On(client), pace.Config{Name: "login", Limits: parse(limits), Now: now}))
		return func(ctx context.Context, event string) (bool, error) {
			r, err := l.Reserve(ctx, event)
			return r.OK, err
		}
	}
}

// bookings returns the rows of pace in the server part.
func bookings(client rueidis.Client) []contender {
	return []contender{limiterRow(paceMaker(client))(contender{
		name: "pace", like: "50/1h: Reserve, a turn that comes at once; four booked before", beside: "window", allows: true,
	}, four, "50/1h")}
}
