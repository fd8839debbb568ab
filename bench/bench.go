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

// bench holds what to measure, and on which servers to measure it.
type bench struct {
	servers

	callers []int         // for throughput, hot and inflight
	passes  int           // for throughput, hot and inflight
	slice   time.Duration // for throughput, hot and inflight
	beside  *neighbour    // nil means none

	rounds         int           // for server, pace and inflight
	events, memory int           // for server; memory also for inflight
	span           time.Duration // for pace and inflight

	rows *regexp.Regexp // nil means all
	log  *log.Logger    // for progress messages
}

// parts maps the names of the parts on the command line to their functions.
var parts = map[string]func(b bench, ctx context.Context, res *result) error{
	"throughput": bench.throughput, "hot": bench.hot, "server": bench.server, "accuracy": bench.accuracy, "pace": bench.pace, "inflight": bench.inflight,
}

// order is the order in which a run of all parts executes them.
var order = []string{"throughput", "hot", "server", "accuracy", "pace", "inflight"}

// run runs the named parts. The servers are empty before and after each.
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

// wanted returns the contenders that -rows matches, and those with which other contenders are
// compared.
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
