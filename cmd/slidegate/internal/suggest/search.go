package suggest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slidegate/slidegate/window"
)

// search tries sets of limits on a history. It tries each set only once.
type search struct {
	h       *History
	ctx     context.Context // stored because a search lasts for a single call to Propose
	mayWait int             // how many honest attempts may be delayed
	known   map[string]Set
	err     error // the first error; once it is set, every set counts as stopping nothing
}

// choice is a set of limits, ordered by window. Each limit consists of a window and an index into
// steps.
type choice []point

type point struct {
	per  time.Duration
	step int
}

func (c choice) limits() (ls []window.Limit) {
	for _, p := range c {
		ls = append(ls, window.Limit{Max: steps[p.step], Per: p.per})
	}
	return ls
}

// try returns what the given choice would have stopped and delayed.
func (s *search) try(c choice) Set {
	key := fmt.Sprint(c)
	set, ok := s.known[key]
	if !ok && s.err == nil {
		set, s.err = s.h.decide(s.ctx, c.limits())
		s.known[key] = set
		s.h.tried.Add(1)
	}
	return set
}

// isGood reports whether a choice delays few enough honest attempts.
func (s *search) isGood(c choice) bool { return s.try(c).Delayed <= s.mayWait && s.err == nil }

// tightest returns the tightest good limit for a window. It uses bisection, which assumes that a
// larger limit never delays more attempts. Because that is not always true, tightest also tries a
// few tighter limits, and then climbs.
func (s *search) tightest(per time.Duration) choice {
	const below = 3
	good := func(step int) bool { return s.isGood(choice{{per, step}}) }
	step := sort.Search(len(steps)-1, good)
	for next := step - 1; next >= max(0, step-below); next-- {
		if good(next) {
			step = next
		}
	}
	return s.climb(choice{{per, step}})
}

// singles returns the tightest good limit for each window that is shorter than the log.
func (s *search) singles() (all []choice) {
	for _, per := range windows {
		if per < s.h.to.Sub(s.h.from) {
			all = append(all, s.tightest(per))
		}
	}
	return all
}

// pairs climbs from each pair of the given single limits.
func (s *search) pairs(singles []choice) (all []choice) {
	for i, a := range singles {
		for _, b := range singles[i+1:] {
			all = append(all, s.climb(slices.Concat(a, b)))
		}
	}
	return all
}

// climb loosens a choice until it is good. It then keeps moving one limit by one step for as long
// as that gives a good choice that stops more.
func (s *search) climb(c choice) choice {
	for !s.isGood(c) && s.err == nil {
		looser := s.neighbours(c, +1)
		if len(looser) == 0 {
			return c
		}
		c = slices.MinFunc(looser, s.compare)
	}
	for s.err == nil {
		next := s.best(append(s.neighbours(c, -1), s.neighbours(c, +1)...))
		if next == nil || s.try(next).Stopped <= s.try(c).Stopped {
			break
		}
		c = next
	}
	return c
}

// compare orders choices by how few honest attempts they delay, and then by how many attempts they
// stop.
func (s *search) compare(a, b choice) int {
	x, y := s.try(a), s.try(b)
	if x.Delayed != y.Delayed {
		return x.Delayed - y.Delayed
	}
	return y.Stopped - x.Stopped
}

// neighbours returns all choices that differ from c in one limit, which is moved by one of the
// given numbers of steps.
func (s *search) neighbours(c choice, away int) (all []choice) {
	for i, p := range c {
		if step := p.step + away; step >= 0 && step < len(steps) {
			next := slices.Clone(c)
			next[i].step = step
			all = append(all, next)
		}
	}
	return all
}

// best returns the first of the good choices that stop the most. If none is good, it returns nil.
func (s *search) best(all []choice) (best choice) {
	for _, c := range all {
		if s.isGood(c) && (best == nil || s.try(c).Stopped > s.try(best).Stopped) {
			best = c
		}
	}
	return best
}

// withEach returns c extended by each single limit with a window that c lacks, after climbing from
// it.
func (s *search) withEach(c choice, singles []choice) (all []choice) {
	if c == nil {
		return nil
	}
	for _, single := range singles {
		if slices.ContainsFunc(c, func(p point) bool { return p.per == single[0].per }) {
			continue
		}
		more := slices.Concat(c, single)
		slices.SortFunc(more, func(a, b point) int { return cmp.Compare(a.per, b.per) })
		all = append(all, s.climb(more))
	}
	return all
}

// decide replays all attempts under the given limits, using all processors.
func (h *History) decide(ctx context.Context, limits []window.Limit) (Set, error) {
	g, ctx := errgroup.WithContext(ctx)
	workers := runtime.GOMAXPROCS(0)
	parts := make([]Set, workers)
	for w := range workers {
		g.Go(func() (err error) {
			parts[w], err = h.decidePart(ctx, limits, w, workers)
			return err
		})
	}
	err := g.Wait()
	total := Set{Limits: limits}
	for _, p := range parts {
		total.Stopped += p.Stopped
		total.Delayed += p.Delayed
		total.attackers += p.attackers
	}
	return total, err
}

// decidePart replays every n-th event, starting at index first.
func (h *History) decidePart(ctx context.Context, limits []window.Limit, first, n int) (set Set, err error) {
	var now time.Time
	l, err := window.NewLocal(window.Config{Name: "suggest", Limits: limits, Now: func() time.Time { return now }})
	if err != nil {
		return set, err
	}
	for i := first; i < len(h.events); i += n {
		if ctx.Err() != nil {
			return set, ctx.Err()
		}
		e := h.events[i]
		if e.units <= slices.MinFunc(limits, func(a, b window.Limit) int { return cmp.Compare(a.Max, b.Max) }).Max {
			continue // all limits allow all of its attempts
		}
		stopped := 0
		for _, a := range e.attempts {
			now = a.at
			denied, err := deny(context.WithoutCancel(ctx), l, e.name, a)
			if err != nil {
				return set, err
			}
			stopped += denied
			if h.isHonest(e, a) {
				set.Delayed += denied
			}
		}
		set.Stopped += stopped
		if isAttack(stopped, e.total) {
			set.attackers++
		}
		if err := l.Reset(ctx, e.name); err != nil {
			return set, err
		}
	}
	return set, nil
}

// deny returns how many attempts of a line would be denied.
func deny(ctx context.Context, l *window.Limiter, name string, a attempt) (denied int, err error) {
	for range a.times {
		d, err := l.AllowN(ctx, name, a.units)
		if err != nil && !errors.Is(err, window.ErrExceedsLimit) {
			return denied, err
		}
		if !d.Allowed {
			denied++
		}
	}
	return denied, nil
}
