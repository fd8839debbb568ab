package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// The rows with which other rows are compared.
const (
	rate     = "redis_rate"
	constant = "constant"
)

// ask makes one decision on an event.
type ask = func(ctx context.Context, event string) (allowed bool, err error)

// contender is a way of deciding on events that are in a given state. Every decision must have the
// given outcome.
type contender struct {
	name   string
	like   string // what it does
	beside string // another row with which the server part compares this one
	allows bool   // whether each decision must allow the event
	hot    bool   // whether all decisions are on one event
	merges bool   // whether a script call can make several decisions
	keys   int    // the number of keys that an event has after a decision

	alone  bool // in a fleet, a single process has all callers
	undone bool // a decision leaves the event in the state it was in before

	grows string // what increases in a series of rows, for a picture
	size  int    // its value in this row

	commands map[string]int // the commands per decision; nil means one EVALSHA
	inside   map[string]int // which of these commands the script calls; their time is part of the script's

	// before brings an event into its state before a decision. nil means that the event is new.
	before func(ctx context.Context, event string) error
	ask    ask

	first int // the number of its first event
}

// contenders returns the rows of the server part, in order.
func contenders(client rueidis.Client, theirs redis.UniversalClient) []contender {
	return slices.Concat(redisRate(theirs), windows(client), levels(client), bookings(client), libraries(theirs),
		scripted(client), plainCommands(client), growth(client), floors(client))
}

// askRow completes a row whose events have a single key and have been counted four times.
func askRow(c contender, ask ask) contender {
	c.keys, c.ask = 1, ask
	c.before = func(ctx context.Context, event string) error {
		for range 4 {
			if _, err := ask(ctx, event); err != nil {
				return err
			}
		}
		return nil
	}
	return c
}

// event returns the i-th event of c. A hot contender has only one.
func (c contender) event(i int) string {
	if c.hot {
		i = 0
	}
	return event(c.first + i)
}

// distinct returns how many of n events are distinct.
func (c contender) distinct(n int) int {
	if c.hot {
		return 1
	}
	return n
}

// sends returns the commands per decision.
func (c contender) sends() map[string]int {
	if c.commands == nil {
		return map[string]int{"evalsha": 1}
	}
	return c.commands
}

// mustAnswer makes one decision and checks its outcome.
func (c contender) mustAnswer(ctx context.Context, event string) error {
	allowed, err := c.ask(ctx, event)
	if err == nil && allowed != c.allows {
		err = fmt.Errorf("event %s: allowed is %v, but this row measures the other outcome", event, allowed)
	}
	return err
}

// event returns the i-th event, which is an IPv4 address. The first is 198.51.100.0.
func event(i int) string {
	n := 198<<24 | 51<<16 | 100<<8 + uint32(i)
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}).String()
}
