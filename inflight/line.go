package inflight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/health"
)

const (
	asksEvery = 50 * time.Millisecond
	yields    = 3 * time.Millisecond // head start for other processes after a place was released in this one
)

// lines holds this process's waiters, by event.
type lines struct {
	mu sync.Mutex
	of map[string]*line
}

// A line holds the waiters for units of an event, first come, first served. Only the first waiter
// asks.
type line struct {
	waiters []*waiter
	full    bool // whether the last answer was a denial
}

// A waiter waits for units of an event.
type waiter struct {
	isFirst chan struct{} // signalled when the waiter becomes the first in line
	freed   chan struct{} // signalled when a place is released in this process
}

// wait waits until n units are free, and takes them. If the caller gives up, its error includes
// ErrFull if the last answer to the first in line was a denial.
func (s *lines) wait(ctx context.Context, l *Limiter, event string, n int64) (*Lease, decided, error) {
	w := s.join(event)
	defer s.leave(event, w)
	lease, d, err := s.take(ctx, l, event, n, w)
	if err != nil && ctx.Err() != nil && !health.IsOutage(err) && s.isFull(event) {
		err = fmt.Errorf("%w: %w", err, ErrFull)
	}
	return lease, d, err
}

// take takes n units once w is the first in line and the units are free.
func (s *lines) take(ctx context.Context, l *Limiter, event string, n int64, w *waiter) (*Lease, decided, error) {
	select {
	case <-w.isFirst:
	case <-ctx.Done():
		return nil, decided{}, l.leftBy(ctx)
	}
	for {
		lease, d, err := l.try(ctx, event, n)
		s.heard(event, lease == nil && err == nil, health.IsOutage(err))
		if lease != nil || err != nil {
			return lease, d, err
		}
		if w.sleep(ctx, asksEvery) != nil {
			return nil, d, l.leftBy(ctx)
		}
	}
}

// sleep waits for d ± 20%, or until a place is released in this process.
func (w *waiter) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(time.Duration((0.8 + 0.4*rand.Float64()) * float64(d)))
	defer timer.Stop()
	select {
	case <-w.freed:
		return clock.Sleep(ctx, yields)
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// errLeft is in the error of a wait whose caller gave up.
var errLeft = errors.New("the caller left before units were free")

func (l *Limiter) leftBy(ctx context.Context) error {
	return l.engine.Wrap(fmt.Errorf("%w: %w", errLeft, ctx.Err()))
}

// heard records whether the last answer for the event was a denial. It ignores errors that concern
// only one caller.
func (s *lines) heard(event string, denied, outage bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on := s.of[event]; denied || outage {
		on.full = denied
	}
}

func (s *lines) isFull(event string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[event].full
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

// leave removes w from its line. If w was the first, the next waiter becomes the first and asks.
func (s *lines) leave(event string, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	on := s.of[event]
	i := slices.Index(on.waiters, w)
	on.waiters = slices.Delete(on.waiters, i, i+1)
	switch {
	case len(on.waiters) == 0:
		delete(s.of, event)
	case i == 0:
		on.waiters[0].isFirst <- struct{}{}
	}
}

// waiting returns how many callers are waiting, for all events together.
func (s *lines) waiting() (callers int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, on := range s.of {
		callers += int64(len(on.waiters))
	}
	return callers
}

// released notifies the first waiter for the event that a place was released.
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
