package main

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/goredisgate"
	"github.com/slidegate/slidegate/window"
)

// windowMaker returns a maker that creates window limiters.
func windowMaker(client rueidis.Client) maker {
	return func(limits []string, now func() time.Time) ask {
		return asking(must(window.New(window.On(client), window.Config{Name: "login", Limits: parse(limits), Timeout: patience, Now: now})))
	}
}

// goRedisName is the name of the rows for window on go-redis.
const goRedisName = "window, go-redis"

// goRedisMaker returns a maker that creates window limiters on a go-redis client.
func goRedisMaker(client redis.UniversalClient) maker {
	conn := goredisgate.On(client)
	return func(limits []string, now func() time.Time) ask {
		return asking(must(window.New(conn, window.Config{Name: "login", Limits: parse(limits), Timeout: patience, Now: now})))
	}
}

// localName is the name of the rows for window in memory.
const localName = "window, in memory"

// localMaker returns a maker that creates window limiters in memory.
func localMaker(rueidis.Client) maker {
	return func(limits []string, now func() time.Time) ask {
		return asking(must(window.NewLocal(window.Config{Name: "login", Limits: parse(limits), Timeout: patience, Now: now})))
	}
}

// earlier creates the limiters of an earlier revision. Only earlier.sh sets it. A field is nil if
// that revision does not have the package.
var earlier struct {
	window, local, ar1, pace func(client rueidis.Client) maker
	onGoRedis                func(client redis.UniversalClient) maker
	login, inflight          func(client rueidis.Client) ask
}

// before is the suffix of the names of the earlier revision's rows.
const before = " before"

// both returns the row for a limiter and, if there is one, for that of an earlier revision.
func both[C, L any](row func(name string, of L) contender, name string, client C, of, old func(C) L) []contender {
	rows := []contender{row(name, of(client))}
	if old != nil {
		rows = append(rows, row(name+before, old(client)))
	}
	return rows
}

// windows returns the window rows of the server part.
func windows(client rueidis.Client) (rows []contender) {
	three := []string{"1/5s", "50/1h", "200/1d"}
	single := contender{name: "window", like: "50/1h: exact; the record holds 4 buckets, the event adds one", allows: true}
	triple := contender{name: "window, 3 limits", like: "1/5s, 50/1h, 200/1d: 0, 4 and 2 buckets, the event adds one to each", allows: true}
	row := limiterRow(windowMaker(client))
	rows = []contender{
		row(single, four, "50/1h"),
		row(contender{name: "window, wide", like: "1000/1h: buckets of a minute; the record holds 4, the event adds one", allows: true}, four, "1000/1h"),
		row(triple, four, three...),
		row(contender{name: "window, denied", like: "4/1h: used up", beside: "window"}, four, "4/1h"),
		row(contender{name: "window, 3 limits, denied", like: "1/5s, 4/1h, 200/1d: the second is used up", beside: "window, 3 limits"},
			four, "1/5s", "4/1h", "200/1d"),
		row(contender{name: "window, new", like: "50/1h: an event without a key", allows: true}, nil, "50/1h"),
		row(contender{name: "window, 3 limits, new", like: "1/5s, 50/1h, 200/1d: an event without a key", allows: true}, nil, three...),
	}
	if earlier.window != nil {
		old := limiterRow(earlier.window(client))
		single.name, single.beside, triple.name, triple.beside = "window"+before, "window", "window"+before+", 3 limits", "window, 3 limits"
		rows = append(rows, old(single, four, "50/1h"), old(triple, four, three...))
	}
	return rows
}

// growth returns rows that show how the cost grows with the number of a limit's buckets, and with
// the number of limits.
func growth(client rueidis.Client) (rows []contender) {
	row := limiterRow(windowMaker(client))
	for _, n := range []int{1, 4, 16, 60, 250} {
		like := fmt.Sprintf("exact; the record holds %d", n)
		c := contender{name: fmt.Sprintf("window, buckets: %d", n), like: "256/1h, " + like, allows: true, grows: "buckets, allowed", size: n}
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
