package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/window"
)

// windows are the rows of this library: window.Limiter on the clock of the server, as in production.
func windows(client rueidis.Client) []contender {
	admit := func(name, like string, limits ...string) contender {
		return windowRow(client, contender{name: name, like: like, allows: true}, true, limits)
	}
	deny := func(name, admission, like string, limits ...string) contender {
		return windowRow(client, contender{name: name, like: like, admission: admission}, true, limits)
	}
	fresh := func(name, like string, limits ...string) contender {
		return windowRow(client, contender{name: name, like: like, allows: true}, false, limits)
	}
	return []contender{
		admit("window, 1 limit", "50/1h: exact; the record holds 4 buckets, the event adds one", "50/1h"),
		admit("window, 1 limit, wide", "1000/1h: buckets of a minute; the record holds 4, the event adds one", "1000/1h"),
		admit("window, 3 limits", "1/5s, 50/1h, 200/1d: 0, 4 and 2 buckets, the event adds one to each", "1/5s", "50/1h", "200/1d"),
		deny("window, 1 limit, denied", "window, 1 limit", "4/1h: used up", "4/1h"),
		deny("window, 3 limits, denied", "window, 3 limits", "1/5s, 4/1h, 200/1d: the second is used up", "1/5s", "4/1h", "200/1d"),
		fresh("window, 1 limit, new", "50/1h: an event without a key", "50/1h"),
		fresh("window, 3 limits, new", "1/5s, 50/1h, 200/1d: an event without a key", "1/5s", "50/1h", "200/1d"),
	}
}

// windowRow completes c: its limits, and its state before, which is four units counted or none.
func windowRow(client rueidis.Client, c contender, counted bool, limits []string) contender {
	cfg := window.Config{Name: "login", Limits: parse(limits)}
	l := must(window.New(client, cfg))
	c.keys = 1
	c.ask = func(ctx context.Context, event string) (bool, error) {
		d, err := l.Allow(ctx, event)
		return d.Allowed, err
	}
	if counted {
		c.before = func(ctx context.Context, event string) error { return countFour(ctx, client, cfg, event) }
	}
	return c
}

// slot is the width of a bucket under 200/1d.
const slot = 24 * time.Minute

// countFour counts four units at four times before now, placed so that the state does not depend on the hour: all in the
// last 54 minutes, each in a minute of its own, and two in each of the last two slots before the present one.
func countFour(ctx context.Context, client rueidis.Client, cfg window.Config, event string) error {
	begin := time.Now().Truncate(slot)
	for _, minutes := range []int{-30, -26, -10, -1} {
		cfg.Now = func() time.Time { return begin.Add(time.Duration(minutes) * time.Minute) }
		d, err := must(window.New(client, cfg)).Allow(ctx, event)
		if err != nil {
			return err
		}
		if !d.Allowed {
			return fmt.Errorf("event %s is denied before it is measured: %v", event, d)
		}
	}
	return nil
}

func parse(texts []string) (limits []window.Limit) {
	for _, text := range texts {
		limits = append(limits, must(window.ParseLimit(text)))
	}
	return limits
}

// must is for limits written in this program.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
