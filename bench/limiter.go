package main

import (
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/window"
)

// limiter is a limiter of this library.
type limiter interface {
	Allow(ctx context.Context, event string) (window.Decision, error)
}

// maker returns a function that decides with a limiter. The limiter's clock is now. nil means the
// server's clock, as in production.
type maker func(limits []string, now func() time.Time) ask

// asking returns a function that decides with l.
func asking(l limiter) ask {
	return func(ctx context.Context, event string) (bool, error) {
		d, err := l.Allow(ctx, event)
		return d.Allowed, err
	}
}

// state says, for each unit counted beforehand, how long ago it was counted.
type state []time.Duration

// The states before a decision. The four units are timed so that the state does not depend on the
// hour: all are within the last 54 minutes, each in a minute of its own, and two in each of the
// last two slots.
var (
	four = state{30 * time.Minute, 26 * time.Minute, 10 * time.Minute, time.Minute}
	once = state{time.Minute}
)

// spread returns n units that are spread evenly over half an hour.
func spread(n int) state {
	s := make(state, n)
	for i := range s {
		s[i] = 30 * time.Minute * time.Duration(n-i) / time.Duration(n)
	}
	return s
}

// slot is the width of a bucket under 200/1d.
const slot = 24 * time.Minute

// limiterRow returns a function that completes a row with a limiter, its limits and the state
// before a decision. Several of the limiter's decisions may share a script call.
func limiterRow(of maker) func(c contender, before state, limits ...string) contender {
	return func(c contender, before state, limits ...string) contender {
		c.keys, c.merges, c.ask = 1, true, of(limits, nil)
		if before != nil {
			c.before = func(ctx context.Context, event string) error { return before.count(ctx, of, limits, event) }
		}
		return c
	}
}

// count counts the units of the state.
func (s state) count(ctx context.Context, of maker, limits []string, event string) error {
	begin := time.Now().Truncate(slot)
	for _, before := range s {
		at := begin.Add(-before).Truncate(time.Millisecond)
		allowed, err := of(limits, func() time.Time { return at })(ctx, event)
		if err != nil {
			return err
		}
		if !allowed {
			return fmt.Errorf("event %s is denied before it is measured", event)
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

// must returns v, or panics if err is not nil. It is for limits that are constants of this program.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
