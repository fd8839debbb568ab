package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// The rows with which others are compared.
const (
	rate     = "redis_rate"
	constant = "constant"
)

// ask makes one decision on an event.
type ask = func(ctx context.Context, event string) (allowed bool, err error)

// contender is one way to decide on events in a given state, with a given outcome.
type contender struct {
	name   string
	like   string // what it does
	beside string // another row with which the server part compares it
	allows bool   // the outcome that each decision must have
	hot    bool   // all decisions are on one event
	merges bool   // several decisions may be one script call
	keys   int    // keys of one event after a decision

	alone  bool // in a fleet, one process has all callers
	undone bool // after a decision, the event is as it was before

	grows string // what a series of rows increases, for a picture
	size  int    // and its value in this row

	commands map[string]int // the commands of one decision; nil: one EVALSHA
	inside   map[string]int // how many of these its script makes, whose time is part of the script's

	// before brings an event into its state before a decision; nil means that the event is new.
	before func(ctx context.Context, event string) error
	ask    ask

	first int // the number of its first event
}

// contenders returns the rows of the server part, in their order.
func contenders(client rueidis.Client, theirs redis.UniversalClient) []contender {
	return slices.Concat(redisRate(theirs), windows(client), levels(client), bookings(client), libraries(theirs),
		scripted(client), plainCommands(client), growth(client), floors(client))
}

// askRow completes a row whose events have one key and were counted four times before.
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

// sends returns the commands of one decision.
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

// event returns the i-th event: an IPv4 address, from 198.51.100.0 on.
func event(i int) string {
	n := 198<<24 | 51<<16 | 100<<8 + uint32(i)
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}).String()
}
