package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"regexp"
	"slices"
	"strings"
	"time"
)

// bench holds what to measure, and on which servers.
type bench struct {
	servers

	callers []int         // of throughput, hot and inflight
	passes  int           // of throughput, hot and inflight
	slice   time.Duration // of throughput, hot and inflight
	beside  *neighbour    // nil: none

	rounds         int           // of server, pace and inflight
	events, memory int           // of server; memory also of inflight
	span           time.Duration // of pace and inflight

	rows *regexp.Regexp // nil: all
	log  *log.Logger    // progress
}

// parts holds the parts of a run, by their names on the command line.
var parts = map[string]func(b bench, ctx context.Context, res *result) error{
	"throughput": bench.throughput, "hot": bench.hot, "server": bench.server, "accuracy": bench.accuracy, "pace": bench.pace, "inflight": bench.inflight,
}

// order is the order of the parts in a run of all parts.
var order = []string{"throughput", "hot", "server", "accuracy", "pace", "inflight"}

// run measures parts. The servers are empty before and after.
func (b bench) run(ctx context.Context, names []string, res *result) error {
	if n, err := b.countAll(ctx); err != nil || n > 0 {
		return errors.Join(fmt.Errorf("the Redis holds %d keys; use an empty one, because this program empties it", n), err)
	}
	defer func() { _ = b.flush(context.WithoutCancel(ctx)) }()
	for _, name := range names {
		if err := parts[name](b, ctx, res); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// wanted returns the contenders that -rows matches, and those with which others are compared.
func (b bench) wanted(all []contender, always ...string) ([]contender, error) {
	if b.rows == nil {
		return all, nil
	}
	some := slices.DeleteFunc(slices.Clone(all), func(c contender) bool {
		return !b.rows.MatchString(c.name) && !slices.Contains(always, c.name)
	})
	if len(some) > len(always) {
		return some, nil
	}
	var names []string
	for _, c := range all {
		names = append(names, c.name)
	}
	return nil, fmt.Errorf("no row matches %q; there are: %s", b.rows, strings.Join(names, "; "))
}
