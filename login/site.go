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

// Alarm represents the failures across the whole service, and whether they are far above normal:
// see Challenged.Site.
type Alarm struct {
	// On reports whether addresses that have failed twice need a challenge. The alarm switches on when
	// Level reaches Limit.Max, and off when Level falls below half of that.
	On bool

	// Level is the level of failures, at most Limit.Max. Without new failures, it halves in 0.69 x
	// Limit.Per.
	Level int64

	// Limit is Challenged.Site, or its default.
	Limit window.Limit
}

// Alarm returns the alarm as this process knows it. While there are attempts, the process asks
// Redis about once a second. Otherwise the level decays by itself. Without Config.Challenged, it
// returns the zero Alarm.
func (g *Guard) Alarm() Alarm {
	if g == nil || g.alarm == nil {
		return Alarm{}
	}
	return g.alarm.current()
}

// siteAlarm watches the failures across the whole service. All guards with the same Name share the
// level. Each decides for itself whether the alarm is on.
type siteAlarm struct {
	shared   *ar1.Limiter
	limit    window.Limit
	denials  *window.Limiter // in memory: lets each address that the alarm denies count once in Per/2
	onSwitch func(Alarm)     // Challenged.Switched; may be nil
	now      func() time.Time
	inMemory bool

	// failures counts failures since the last exchange, including attempts under way. It is
	// negative after the success of an attempt that is already in the shared level.
	failures atomic.Int64
	// correction is 0 or negative. It takes back the excess in the shared level, which comes from
	// attempts that succeeded and from rounding up. Only takeFailures uses it.
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
	exchangeEvery = time.Second // the minimum time between two exchanges
)

// isOn reports whether the alarm is on.
func (s *siteAlarm) isOn() bool { return s != nil && s.current().On }

// count counts an attempt of an unknown device. An allowed attempt counts as a failure until it
// succeeds. An attempt that the alarm denied counts twice in each Per for its address. So the alarm
// lasts as long as the attack, but a few addresses cannot make it last. Attempts that other budgets
// denied do not count, because they are stopped already.
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
	s.share(ctx)
}

// share starts an exchange with the shared level, if the last one began at least a second ago. No
// attempt waits for Redis here.
func (s *siteAlarm) share(ctx context.Context) {
	since, starts := s.startExchange()
	switch {
	case !starts:
	case s.inMemory:
		s.exchange(ctx, since)
	default:
		go s.exchange(ctx, since)
	}
}

// startExchange reports whether it is time for an exchange, and how long ago the last one began.
func (s *siteAlarm) startExchange() (since time.Duration, starts bool) {
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

// exchange adds the failures to the shared level, and reads it, even if ctx has ended. If Redis
// does not accept the failures, they are dropped.
func (s *siteAlarm) exchange(ctx context.Context, since time.Duration) {
	ctx, cancel := calls.Finish(ctx)
	defer cancel()
	d, err := s.add(ctx, s.takeFailures(since))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchanging = false
	if now := s.now(); err == nil {
		s.levelAt, s.level = now, d.Usage[0].Used
		s.update(now)
	}
}

// takeFailures returns how many failures to add to the shared level. Nearly all are from the second
// after the last exchange. The correction decays as the level does.
func (s *siteAlarm) takeFailures(since time.Duration) int64 {
	n, full := s.decayed(s.correction, since)+s.decayed(float64(s.failures.Swap(0)), since-exchangeEvery), float64(s.limit.Max)
	whole := math.Ceil(max(0, min(n, full)))
	s.correction = max(-full, min(0, n-whole))
	return int64(whole)
}

// add adds n failures to the shared level and returns it. If n is 0, it only reads.
func (s *siteAlarm) add(ctx context.Context, n int64) (ar1.Decision, error) {
	if n == 0 {
		return s.shared.Peek(ctx, siteEvent)
	}
	return s.shared.AllowN(ctx, siteEvent, n)
}

// current returns the alarm now.
func (s *siteAlarm) current() Alarm {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.update(s.now())
}

// update switches the alarm by the level that was last read, minus what has decayed since. So the
// alarm also switches off while Redis does not answer.
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

// decayed returns what is left of a level after some time.
func (s *siteAlarm) decayed(level float64, later time.Duration) float64 {
	return level * math.Exp(-float64(max(0, later))/float64(s.limit.Per))
}
