package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/window"
)

// memory is the amount of memory that an event takes.
type memory struct {
	Events        int     `json:"events"`
	BytesPerEvent float64 `json:"bytes_per_event"` // growth of used_memory
	Shortest      int64   `json:"shortest"`        // the size of the shortest value in bytes
	Median        int64   `json:"median"`
	Longest       int64   `json:"longest"`
}

// Each event in the memory measurement is counted times times, with a pause of between.
const (
	times   = 5
	between = 130 * time.Second
)

var memoryLimits = []string{"1/5s", "50/1h", "200/1d"}

// memories measures the memory of an event: for each contender in the state before a decision, and
// for window after five counts.
func (b bench) memories(ctx context.Context, all []contender, res *result) error {
	for i, c := range all {
		if c.before == nil {
			continue
		}
		bytes, err := b.bytesPerEvent(ctx, c, b.memory)
		if err != nil {
			return fmt.Errorf("memory of %s: %w", c.name, err)
		}
		res.Rows[i].Event = bytes
	}
	m, err := b.measureMemory(ctx)
	res.Memory = &m
	return err
}

// bytesPerEvent returns how much memory each of n events of a contender takes in the state before a
// decision.
func (b bench) bytesPerEvent(ctx context.Context, c contender, n int) (float64, error) {
	state, err := b.stateBefore(ctx, c)
	if err == nil {
		err = b.flush(ctx)
	}
	before, err1 := b.usedMemory(ctx)
	err2 := b.copyToAll(ctx, c, state, n)
	after, err3 := b.usedMemory(ctx)
	return (after - before) / float64(n), errors.Join(err, err1, err2, err3, b.checkKeys(ctx, c.keys*n))
}

// measureMemory counts each event five times, 130 s apart, at times spread evenly over a day. It
// returns how much the memory has grown. This covers keys, values, expiry times, and the server's
// hash tables at whatever size they have reached.
func (b bench) measureMemory(ctx context.Context) (memory, error) {
	b.log.Printf("memory of %d events", b.memory)
	m := memory{Events: b.memory}
	// First load the script and allocate its buffers.
	if err := errors.Join(b.flush(ctx), b.countOften(ctx, 1), b.flush(ctx)); err != nil {
		return m, err
	}
	before, err := b.usedMemory(ctx)
	if err != nil {
		return m, err
	}
	if err := b.countOften(ctx, b.memory); err != nil {
		return m, err
	}
	after, err := b.usedMemory(ctx)
	if err != nil {
		return m, err
	}
	m.BytesPerEvent = (after - before) / float64(b.memory)
	return m, b.lengths(ctx, &m)
}

// countOften counts each of the first n events five times.
func (b bench) countOften(ctx context.Context, n int) error {
	var now time.Time
	cfg := window.Config{Name: "login", Limits: parse(memoryLimits), Timeout: patience, Now: func() time.Time { return now }}
	l := must(window.New(window.On(b.client), cfg))
	day := time.Now().Truncate(24 * time.Hour)
	for i := range n {
		now = day.Add(time.Duration(i) * (24 * time.Hour / time.Duration(n))).Truncate(time.Millisecond)
		for range times {
			d, err := l.Allow(ctx, event(i))
			if err != nil {
				return err
			}
			if !d.Allowed {
				return fmt.Errorf("event %s is denied while its memory is measured: %v", event(i), d)
			}
			now = now.Add(between)
		}
	}
	return nil
}

// usedMemory returns how many bytes the servers use, excluding client buffers, which Redis may
// shrink at any time.
func (s servers) usedMemory(ctx context.Context) (float64, error) {
	all, err := s.info(ctx, "memory", "used_memory")
	clients, errClients := s.info(ctx, "memory", "mem_clients_normal")
	return all - clients, errors.Join(err, errClients)
}

// lengths fills in the lengths of the values. It checks that each event has one value.
func (b bench) lengths(ctx context.Context, m *memory) error {
	keys, err := b.keys(ctx)
	if err != nil {
		return err
	}
	if len(keys) != b.memory {
		return fmt.Errorf("%d keys for %d events", len(keys), b.memory)
	}
	var batch rueidis.Commands
	for _, key := range keys {
		batch = append(batch, b.client.B().Strlen().Key(key).Build())
	}
	var lengths []int64
	for _, reply := range b.client.DoMulti(ctx, batch...) {
		n, err := reply.AsInt64()
		if err != nil {
			return err
		}
		lengths = append(lengths, n)
	}
	slices.Sort(lengths)
	m.Shortest, m.Median, m.Longest = lengths[0], lengths[len(lengths)/2], lengths[len(lengths)-1]
	return nil
}
