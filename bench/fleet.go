package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The parts pace and inflight measure a fleet: several processes, each with several callers that
// repeatedly wait for the same event. If a contender works without a server, all callers are in one
// process.
const (
	fleetProcesses = 3
	fleetCallers   = 20
)

// pace compares ways to wait for turns.
func (b bench) pace(ctx context.Context, res *result) (err error) {
	res.Pace, err = b.fleets(ctx, "pace", waiters(b.ours))
	return err
}

// fleets compares ways to wait. The spans in which they are measured alternate.
func (b bench) fleets(ctx context.Context, part string, all []contender) (*fleet, error) {
	all, err := b.wanted(all)
	if err != nil {
		return nil, err
	}
	seen := make([][]span, len(all))
	for round := range b.rounds {
		b.log.Printf("%s: round %d of %d", part, round+1, b.rounds)
		for _, i := range rand.Perm(len(all)) {
			s, err := b.measureSpan(ctx, all[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].name, err)
			}
			seen[i] = append(seen[i], s)
		}
	}
	return b.summarizeSpans(all, seen), nil
}

// measureSpan runs a fleet, and starts to measure after a tenth of the span.
func (b bench) measureSpan(ctx context.Context, c contender) (s span, err error) {
	if err := b.flush(ctx); err != nil {
		return s, err
	}
	all, stop, err := b.startFleet(c)
	defer stop()
	if err != nil {
		return s, err
	}
	begin := time.Now().Add(b.span / 10)
	end := begin.Add(b.span)
	var group sync.WaitGroup
	errs := make([]error, len(all))
	for i, p := range all {
		group.Go(func() { errs[i] = p.readUntil(end) })
	}
	if err := errors.Join(pauseUntil(ctx, begin), b.resetStats(ctx), pauseUntil(ctx, end)); err != nil {
		return s, err
	}
	stats, err := b.commandStats(ctx)
	group.Wait()
	if err := errors.Join(err, errors.Join(errs...)); err != nil {
		return s, err
	}
	return newSpan(all, begin, end, scriptCalls(stats))
}

// pauseUntil returns at the given time. If ctx is done before, it returns an error.
func pauseUntil(ctx context.Context, at time.Time) error {
	select {
	case <-time.After(time.Until(at)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startFleet starts the processes of a contender. It returns once each has made a call.
func (b bench) startFleet(c contender) (all []*process, stop func(), err error) {
	stop = func() {
		for _, p := range all {
			p.child.stop()
		}
	}
	processes := fleetProcesses
	if c.alone {
		processes = 1
	}
	for range processes {
		child, err := startChild("wait", b.addr, strconv.Itoa(fleetProcesses*fleetCallers/processes), c.name)
		if err != nil {
			return all, stop, err
		}
		all = append(all, &process{child: child})
	}
	for _, p := range all {
		if err := p.read(); err != nil {
			return all, stop, err
		}
	}
	return all, stop, nil
}

// process is one process of a fleet.
type process struct {
	child *child
	calls []call
}

// call records when a wait ended, in ns since 1970, and how many ns of CPU the process had used up
// to then.
type call struct{ at, cpu int64 }

// read reads the next call.
func (p *process) read() error {
	text, err := p.child.line()
	if err != nil {
		return fmt.Errorf("a process of the fleet ended: %w", err)
	}
	var c call
	_, err = fmt.Sscan(text, &c.at, &c.cpu)
	p.calls = append(p.calls, c)
	return err
}

// readUntil reads calls until it has read one made at or after end.
func (p *process) readUntil(end time.Time) (err error) {
	for err == nil && p.calls[len(p.calls)-1].at < end.UnixNano() {
		err = p.read()
	}
	return err
}

// between returns the calls between begin and end, and the ns of CPU that the process used for
// them. There must be a call before begin and one after end.
func (p *process) between(begin, end time.Time) (calls []call, cpu int64) {
	since := func(at time.Time) int {
		return slices.IndexFunc(p.calls, func(c call) bool { return c.at >= at.UnixNano() })
	}
	from, to := since(begin), since(end)
	return p.calls[from:to], p.calls[to-1].cpu - p.calls[from-1].cpu
}

// waitForever runs in a process of a fleet. Its arguments are the server, the number of callers,
// and the name of the contender.
func waitForever(args []string) error {
	client, err := connect(args[0])
	if err != nil {
		return err
	}
	callers, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	all, name := append(waiters(client), holders(client)...), strings.Join(args[2:], " ")
	c := all[slices.IndexFunc(all, func(c contender) bool { return c.name == name })]
	failed := make(chan error)
	for range callers {
		go func() { failed <- c.waitAgain() }()
	}
	return <-failed
}

// waitAgain waits repeatedly, and prints every call.
func (c contender) waitAgain() error {
	for {
		if _, err := c.ask(context.Background(), event(0)); err != nil {
			return err
		}
		fmt.Println(time.Now().UnixNano(), cpuTime().Nanoseconds())
	}
}
