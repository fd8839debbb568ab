package login

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/window"
)

// Alarm says whether failures over the whole service are far above normal: see Challenged.Site.
type Alarm struct {
	On    bool
	Level int64        // of failures, at most Limit.Max; without new ones it halves in 0.69 x Limit.Per
	Limit window.Limit // Challenged.Site: the alarm goes on when the level reaches Max, and off when it is below half of that
}

// Alarm returns the alarm as this process knows it. While attempts come, it asks Redis about once a second; else the level decays by itself. Without
// Config.Challenged there is no alarm.
func (g *Guard) Alarm() Alarm {
	if g == nil || g.site == nil {
		return Alarm{}
	}
	return g.site.alarm()
}

// site watches the failures over the whole service. All guards of a Name share the level, and each has its own idea of whether the alarm is on.
type site struct {
	shared   *ar1.Limiter
	limit    window.Limit
	stopped  *window.Limiter // in memory: the addresses that the alarm has stopped lately
	changed  func(Alarm)     // nil if nobody wants to know
	now      func() time.Time
	inMemory bool

	// failures are those since the shared level was last asked for. Attempts under way are among them; so it is below 0 after the success of one that the level
	// has.
	failures atomic.Int64
	// rest is 0, or below that what the shared level has too much: attempts that have succeeded, and what was rounded up. Only take uses it.
	rest float64

	mu     sync.Mutex
	asking bool
	asked  time.Time // when the shared level was last asked for
	read   time.Time // when it was last read,
	level  int64     // and what it was then
	on     bool
}

const (
	siteEvent = "failures"
	askEvery  = time.Second // at most
)

// alarmed reports whether the alarm is on.
func (s *site) alarmed() bool { return s != nil && s.alarm().On }

// count counts an attempt of an unknown device: if it is allowed, as a failure until it succeeds; if the alarm stopped it, twice in each Per for its address.
// So the alarm lasts as long as the attack, and a few addresses cannot make it last. What other budgets deny does not count: they hold it already.
func (s *site) count(ctx context.Context, a *Attempt) {
	switch {
	case s == nil || a == nil:
		return
	case a.Allowed:
		a.site = s
		s.failures.Add(1)
	case a.Denied == Site:
		if d, err := s.stopped.Allow(ctx, a.charges[0].event); err == nil && d.Allowed {
			s.failures.Add(1)
		}
	}
	s.share(ctx)
}

// share adds the failures to the shared level and reads it, if it was not asked for within the last second. No attempt waits for Redis here.
func (s *site) share(ctx context.Context) {
	since, begins := s.begins()
	switch {
	case !begins:
	case s.inMemory:
		s.exchange(ctx, since)
	default:
		go s.exchange(context.WithoutCancel(ctx), since)
	}
}

// begins reports whether it is time to ask for the shared level, and how long ago that was done.
func (s *site) begins() (since time.Duration, begins bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if since = now.Sub(s.asked); s.asking || since >= 0 && since < askEvery {
		return 0, false
	}
	if s.asked.IsZero() {
		since = 0
	}
	s.asking, s.asked = true, now
	return since, true
}

// exchange adds the failures to the shared level, and reads it. Failures that Redis does not take are forgotten.
func (s *site) exchange(ctx context.Context, since time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	d, err := s.add(ctx, s.take(since))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = false
	if now := s.now(); err == nil {
		s.read, s.level = now, d.Usage[0].Used
		s.judge(now)
	}
}

// take returns how many failures to add to the shared level. Nearly all of them are from the second after it was last asked for. What the level has too
// much decays as the level does.
func (s *site) take(since time.Duration) int64 {
	n, full := s.decayed(s.rest, since)+s.decayed(float64(s.failures.Swap(0)), since-askEvery), float64(s.limit.Max)
	whole := math.Ceil(max(0, min(n, full)))
	s.rest = max(-full, min(0, n-whole))
	return int64(whole)
}

func (s *site) add(ctx context.Context, n int64) (ar1.Decision, error) {
	if n == 0 {
		return s.shared.Peek(ctx, siteEvent)
	}
	return s.shared.AllowN(ctx, siteEvent, n)
}

func (s *site) alarm() Alarm {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.judge(s.now())
}

// judge switches the alarm by the level that was last read, less what has decayed since. So it goes off also while Redis does not answer.
func (s *site) judge(now time.Time) Alarm {
	level := int64(math.Round(s.decayed(float64(s.level), now.Sub(s.read))))
	a := Alarm{Level: level, Limit: s.limit, On: level >= s.limit.Max || s.on && 2*level >= s.limit.Max}
	if a.On != s.on {
		s.on = a.On
		if s.changed != nil {
			s.changed(a)
		}
	}
	return a
}

// decayed returns what is left of a level some time later.
func (s *site) decayed(level float64, later time.Duration) float64 {
	return level * math.Exp(-float64(max(0, later))/float64(s.limit.Per))
}
