package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	xrate "golang.org/x/time/rate"

	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// paceMaker returns a maker that creates pace limiters. Each decision books a turn.
func paceMaker(client rueidis.Client) maker {
	return func(limits []string, now func() time.Time) ask {
		l := must(pace.New(window.On(client), pace.Config{Name: "login", Limits: parse(limits), Timeout: patience, Now: now}))
		return func(ctx context.Context, event string) (bool, error) {
			r, err := l.Reserve(ctx, event)
			return r.OK, err
		}
	}
}

// bookings returns the pace rows of the server part.
func bookings(client rueidis.Client) []contender {
	return []contender{limiterRow(paceMaker(client))(contender{
		name: "pace", like: "50/1h: Reserve, a turn that comes at once; four booked before", beside: "window", allows: true,
	}, four, "50/1h")}
}

// waiters returns the rows of the pace part.
func waiters(client rueidis.Client) []contender {
	return []contender{
		{name: "pace", like: "Wait, 1/20ms", ask: inOrder(client, "1/20ms")},
		{name: "window", like: "Wait, 50/1s", ask: inNoOrder(client, "50/1s")},
		{name: "window, 2 limits", like: "Wait, 50/1s and 1/20ms", ask: inNoOrder(client, "50/1s", "1/20ms")},
		{name: "x/time/rate", like: "Wait, Every(20ms): in one process, without Redis", alone: true, ask: inProcess(20 * time.Millisecond)},
	}
}

// patience is the Timeout of all limiters. It is long, so that a stall of the machine does
// not count as an outage.
const patience = time.Minute

// inOrder waits with pace's Wait.
func inOrder(client rueidis.Client, limits ...string) ask {
	l := must(pace.New(window.On(client), pace.Config{Name: "fleet", Limits: parse(limits), Timeout: patience}))
	return func(ctx context.Context, event string) (bool, error) {
		err := l.Wait(ctx, event)
		return err == nil, err
	}
}

// inNoOrder waits with window's Wait.
func inNoOrder(client rueidis.Client, limits ...string) ask {
	l := must(window.New(window.On(client), window.Config{Name: "fleet", Limits: parse(limits), Timeout: patience}))
	return func(ctx context.Context, event string) (bool, error) {
		d, err := l.Wait(ctx, event)
		return d.Allowed, err
	}
}

// inProcess waits with x/time/rate's Wait.
func inProcess(every time.Duration) ask {
	l := xrate.NewLimiter(xrate.Every(every), 1)
	return func(ctx context.Context, _ string) (bool, error) {
		err := l.Wait(ctx)
		return err == nil, err
	}
}
