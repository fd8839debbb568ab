package inflight

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/pipeline"
)

const (
	asksEvery = 50 * time.Millisecond // ± 20 %
	yields    = 3 * time.Millisecond  // to other processes, after a place was given back here
)

// lines are those who wait in this process, for each event.
type lines struct {
	mu sync.Mutex
	of map[string]*line
}

// A line is those who wait for units of an event, first come, first served. Only the first asks.
type line struct{ waiters []*waiter }

// A waiter waits for units of an event.
type waiter struct {
	isFirst chan struct{} // it is the first now
	freed   chan struct{} // a place was given back in this process
}

// wait waits until n units are free, and takes them.
func (s *lines) wait(ctx context.Context, l *Limiter, event string, n int64) (*Lease, Decision, error) {
	w := s.join(event)
	defer s.leave(event, w)
	select {
	case <-w.isFirst:
	case <-ctx.Done():
		return nil, Decision{}, l.leftBy(ctx)
	}
	for {
		lease, d, err := l.try(ctx, event, n)
		if lease != nil || err != nil {
			return lease, d, err
		}
		if w.sleep(ctx) != nil {
			return nil, d, l.leftBy(ctx)
		}
	}
}

// sleep waits until the first waiter should ask again.
func (w *waiter) sleep(ctx context.Context) error {
	timer := time.NewTimer(time.Duration((0.8 + 0.4*rand.Float64()) * float64(asksEvery)))
	defer timer.Stop()
	select {
	case <-w.freed:
		return pipeline.Sleep(ctx, yields)
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (l *Limiter) leftBy(ctx context.Context) error {
	return l.engine.Wrap(fmt.Errorf("the caller left before units were free: %w", ctx.Err()))
}

func (s *lines) join(event string) *waiter {
	w := &waiter{make(chan struct{}, 1), make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	on := s.of[event]
	if on == nil {
		on = &line{}
		s.of[event] = on
		w.isFirst <- struct{}{}
	}
	on.waiters = append(on.waiters, w)
	return w
}

// leave removes a waiter. If it was the first, the next one asks.
func (s *lines) leave(event string, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	on := s.of[event]
	if on.waiters[0] != w {
		on.remove(w)
		return
	}
	if on.waiters = on.waiters[1:]; len(on.waiters) == 0 {
		delete(s.of, event)
	} else {
		on.waiters[0].isFirst <- struct{}{}
	}
}

func (l *line) remove(w *waiter) {
	for i, other := range l.waiters {
		if other == w {
			l.waiters = append(l.waiters[:i:i], l.waiters[i+1:]...)
			return
		}
	}
}

// released tells the first waiter that a place was given back.
func (s *lines) released(event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on := s.of[event]; on != nil {
		select {
		case on.waiters[0].freed <- struct{}{}:
		default:
		}
	}
}
