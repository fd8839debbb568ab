package login

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/window"
)

// Alarm represents the level of failures across the whole service, and whether it is far above
// normal: see Challenged.Site.
type Alarm struct {
	// On reports whether addresses that have failed twice need a challenge. The alarm switches on
	// when Level reaches Limit.Max, and switches off when Level falls below half of Limit.Max.
	On bool

	// Level is the level of failures, at most Limit.Max. If there are no new failures, it halves
	// every 0.69 x Limit.Per.
	Level int64

	// Limit is Challenged.Site or its default.
	Limit window.Limit
}

// Alarm returns the alarm as this process knows it. While there are attempts, the process reads the
// level from Redis about once a second. Between reads, it lets the level decay. If
// Config.Challenged is nil, Alarm returns the zero Alarm.
func (g *Guard) Alarm() Alarm {
	if g == nil || g.alarm == nil {
		return Alarm{}
	}
	g.alarm.mu.Lock()
	defer g.alarm.mu.Unlock()
	return g.alarm.update(g.alarm.now())
}

// siteAlarm watches the failures across the whole service. All guards with the same Name share the
// level. Each guard decides for itself whether the alarm is on.
type siteAlarm struct {
	shared   *ar1.Limiter
	limit    window.Limit
	denials  *window.Limiter // in memory: lets each address that the alarm denies count once per Per/2
	onSwitch func(Alarm)     // Challenged.Switched; may be nil
	now      func() time.Time
	inMemory bool

	// failures counts failures since the last exchange, including attempts under way. It can be
	// negative, if an attempt succeeds after the shared level has counted it.
	failures atomic.Int64
	// correction is 0 or negative. It compensates for the excess in the shared level, which comes
	// from attempts that succeeded and from rounding up. Only takeFailures uses it.
	correction float64

	mu           sync.Mutex
	exchanging   bool
	lastExchange time.Time // when the last exchange began
	levelAt      time.Time // when level was read
	level        int64     // the shared level
	on           bool
}

const (
	siteEvent     = "failures"
	exchangeEvery = time.Second // the minimum time between exchanges
)

// count counts an attempt from an unknown device. An allowed attempt counts as a failure until it
// succeeds. Attempts that the alarm denied count at most twice per Per for each address. The alarm
// therefore lasts as long as the attack, but a few addresses cannot keep it on. Attempts that other
// budgets denied do not count, because they are already stopped.
//
// If it is time for an exchange with the shared level, count starts it, but does not wait for
// Redis.
func (s *siteAlarm) count(ctx context.Context, a *Attempt) {
	switch {
	case s == nil || a == nil:
		return
	case a.Allowed:
		a.alarm = s
		s.failures.Add(1)
	case a.DeniedBy == BudgetSite:
		if d, err := s.denials.Allow(ctx, a.who[byAddress]); err == nil && d.Allowed {
			s.failures.Add(1)
		}
	}
	since, due := s.startExchange()
	switch {
	case due && s.inMemory:
		s.exchange(ctx, since)
	case due:
		go s.exchange(ctx, since)
	}
}

// startExchange reports whether an exchange is due, because the last one has ended and began at
// least a second ago. It returns how long ago that was.
func (s *siteAlarm) startExchange() (since time.Duration, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if since = now.Sub(s.lastExchange); s.exchanging || since >= 0 && since < exchangeEvery {
		return 0, false
	}
	if s.lastExchange.IsZero() {
		since = 0
	}
	s.exchanging, s.lastExchange = true, now
	return since, true
}

// exchange adds the failures to the shared level and reads the level, even if ctx is done. If Redis
// does not accept the failures, they are dropped.
func (s *siteAlarm) exchange(ctx context.Context, since time.Duration) {
	ctx, cancel := calls.Finish(ctx)
	defer cancel()
	n, add := s.takeFailures(since), s.shared.AllowN
	if n == 0 { // only read the level
		n, add = 1, s.shared.PeekN
	}
	d, err := add(ctx, siteEvent, n)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchanging = false
	if now := s.now(); err == nil {
		s.levelAt, s.level = now, d.Usage[0].Used
		s.update(now)
	}
}

// takeFailures returns how many failures to add to the shared level. It assumes that they happened
// within a second after the last exchange, and lets them decay since then. The correction decays
// like the level.
func (s *siteAlarm) takeFailures(since time.Duration) int64 {
	n, full := s.decayed(s.correction, since)+s.decayed(float64(s.failures.Swap(0)), since-exchangeEvery), float64(s.limit.Max)
	whole := math.Ceil(max(0, min(n, full)))
	s.correction = max(-full, min(0, n-whole))
	return int64(whole)
}

// update switches the alarm on or off according to the level that was last read, minus what has
// decayed since. The alarm therefore also switches off while Redis does not answer.
func (s *siteAlarm) update(now time.Time) Alarm {
	level := int64(math.Round(s.decayed(float64(s.level), now.Sub(s.levelAt))))
	a := Alarm{Level: level, Limit: s.limit, On: level >= s.limit.Max || s.on && 2*level >= s.limit.Max}
	if a.On != s.on {
		s.on = a.On
		if s.onSwitch != nil {
			s.onSwitch(a)
		}
	}
	return a
}

// decayed returns what is left of the given level after the given time.
func (s *siteAlarm) decayed(level float64, later time.Duration) float64 {
	return level * math.Exp(-float64(max(0, later))/float64(s.limit.Per))
}
