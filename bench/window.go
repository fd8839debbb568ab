package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/lua"
	"github.com/slidegate/slidegate/window"
)

// windowMaker makes limiters of window.
func windowMaker(client rueidis.Client) maker {
	return func(limits []string, now func() time.Time) ask {
		return asking(must(window.New(client, window.Config{Name: "login", Limits: parse(limits), Now: now})))
	}
}

// windows are the rows of window.Limiter.
func windows(client rueidis.Client) []contender {
	row := limiterRow(windowMaker(client))
	limits := []string{"1/5s", "50/1h", "200/1d"}
	single := row(contender{name: "window, 1 limit", like: "50/1h: exact; the record holds 4 buckets, the event adds one", allows: true}, four, "50/1h")
	triple := row(contender{name: "window, 3 limits", like: "1/5s, 50/1h, 200/1d: 0, 4 and 2 buckets, the event adds one to each", allows: true}, four, limits...)
	return []contender{
		single, alone(client, single, one),
		row(contender{name: "window, 1 limit, wide", like: "1000/1h: buckets of a minute; the record holds 4, the event adds one", allows: true}, four, "1000/1h"),
		triple, alone(client, triple, three),
		row(contender{name: "window, 1 limit, denied", like: "4/1h: used up", beside: "window, 1 limit"}, four, "4/1h"),
		row(contender{name: "window, 3 limits, denied", like: "1/5s, 4/1h, 200/1d: the second is used up", beside: "window, 3 limits"}, four, "1/5s", "4/1h", "200/1d"),
		row(contender{name: "window, 1 limit, new", like: "50/1h: an event without a key", allows: true}, nil, "50/1h"),
		row(contender{name: "window, 3 limits, new", like: "1/5s, 50/1h, 200/1d: an event without a key", allows: true}, nil, limits...),
	}
}

// alone is a row of window with its script called by rueidis alone: what the library adds is the difference.
func alone(client rueidis.Client, c contender, args []string) contender {
	script := lua.New(lua.Window)
	c.name, c.beside, c.like = c.name+", script alone", c.name, "the same call by rueidis alone, read as integers"
	c.ask = func(ctx context.Context, event string) (bool, error) {
		reply, err := script.Exec(ctx, client, []string{"login:{" + event + "}:w"}, args).AsIntSlice()
		return err == nil && reply[0] == 1, err
	}
	return c
}

// growth are rows that show how the cost grows: with the buckets of a limit, and with the limits.
func growth(client rueidis.Client) (rows []contender) {
	row := limiterRow(windowMaker(client))
	for _, n := range []int{1, 4, 16, 60, 250} {
		like := fmt.Sprintf("exact; the record holds %d", n)
		c := contender{name: fmt.Sprintf("window, buckets: %d", n), like: "256/1h, " + like, allows: true, grows: "buckets, admitted", size: n}
		denied := contender{name: c.name + ", denied", like: fmt.Sprintf("%d/1h: used up, ", n) + like, grows: "buckets, denied", size: n}
		rows = append(rows, row(c, spread(n), "256/1h@1ms"), row(denied, spread(n), fmt.Sprintf("%d/1h@1ms", n)))
	}
	for _, n := range []int{1, 2, 3, 5, 8, 16, 31} {
		limits := make([]string, n)
		for i := range limits {
			limits[i] = fmt.Sprintf("50/%dh", i+1)
		}
		c := contender{name: fmt.Sprintf("window, limits: %d", n), like: "50/1h, 50/2h and so on: 4 buckets each", allows: true, grows: "limits", size: n}
		rows = append(rows, row(c, four, limits...))
	}
	return rows
}
