package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

// value is the value of a Redis key.
type value struct {
	key, dump string
	ttl       int64 // ms; 0 means none
}

// stateBefore returns the state of event 0 on the server before a decision.
func (s servers) stateBefore(ctx context.Context, c contender) ([]value, error) {
	if err := errors.Join(s.flush(ctx), s.warmUp(ctx, c), s.flush(ctx)); err != nil || c.before == nil {
		return nil, err
	}
	if err := c.before(ctx, event(0)); err != nil {
		return nil, err
	}
	keys, err := s.keys(ctx)
	values := make([]value, len(keys))
	for i, key := range keys {
		dump, errDump := s.client.Do(ctx, s.client.B().Dump().Key(key).Build()).ToString()
		ttl, errTTL := s.client.Do(ctx, s.client.B().Pttl().Key(key).Build()).AsInt64()
		values[i], err = value{key, dump, max(0, ttl)}, errors.Join(err, errDump, errTTL)
	}
	return values, err
}

// statesBefore returns the state of every contender's events.
func (s servers) statesBefore(ctx context.Context, all []contender) (states [][]value, err error) {
	states = make([][]value, len(all))
	for i, c := range all {
		if states[i], err = s.stateBefore(ctx, c); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return states, nil
}

// warmUpEvents is how many events warmUp uses at the same time.
const warmUpEvents = 64

// warmUp makes decisions on new events, so that the server knows the script and the client has
// connections. It also checks that each event gets keys of its own, which would not show later,
// when all keys exist.
func (s servers) warmUp(ctx context.Context, c contender) error {
	errs := make([]error, warmUpEvents)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { _, errs[i] = c.ask(ctx, event(i)) })
	}
	group.Wait()
	return errors.Join(errors.Join(errs...), s.checkKeys(ctx, c.keys*warmUpEvents))
}

// copyToAll gives n events of c the state of event 0. Values do not contain the event's name.
func (s servers) copyToAll(ctx context.Context, c contender, state []value, n int) error {
	var batch rueidis.Commands
	n = c.distinct(n)
	for i := range n {
		for _, v := range state {
			key := strings.Replace(v.key, event(0), c.event(i), 1)
			batch = append(batch, s.client.B().Restore().Key(key).Ttl(v.ttl).SerializedValue(v.dump).Build())
		}
		if len(batch) < 1000 && i+1 < n {
			continue
		}
		for _, reply := range s.client.DoMulti(ctx, batch...) {
			if err := reply.Error(); err != nil {
				return err
			}
		}
		batch = batch[:0]
	}
	return nil
}

// checkCounted checks that an event's state has changed since before it was allowed.
func (s servers) checkCounted(ctx context.Context, c contender, state []value, name string) error {
	if len(state) == 0 || !c.allows || c.undone || strings.HasPrefix(c.name, "floor") {
		return nil
	}
	for _, v := range state {
		now, err := s.client.Do(ctx, s.client.B().Dump().Key(strings.Replace(v.key, event(0), name, 1)).Build()).ToString()
		if err != nil || now != v.dump {
			return err
		}
	}
	return fmt.Errorf("event %s was allowed, but is as it was before", name)
}

// probes is the maximum number of script calls that a limiter makes to prove that there is only one
// server.
const probes = 300

// checkCalls checks that the decisions sent the claimed commands, and called no other scripts. A
// contender that merges may send fewer.
func (c contender) checkCalls(stats map[string]stat, decisions int) error {
	commands := c.sends()
	if calls := stats["evalsha"].calls; c.merges && 0 < calls && calls <= commands["evalsha"]*decisions+probes {
		return nil
	}
	for name, s := range stats {
		if (strings.HasPrefix(name, "script") || strings.HasPrefix(name, "eval")) && commands[name] == 0 {
			return fmt.Errorf("%d calls of %s, but the row claims none", s.calls, name)
		}
	}
	for name, n := range commands {
		if calls := stats[name].calls; calls != n*decisions {
			return fmt.Errorf("%d calls of %s for %d decisions", calls, name, decisions)
		}
	}
	return nil
}
