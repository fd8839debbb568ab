package audit

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/slidegate/slidegate/window"
)

// target is a claim to attack, and the times and numbers that follow from it.
type target struct {
	window.Limit
	drain time.Duration // the time after which a limiter has forgotten everything
	fill  time.Duration // the time needed to use up Max within the shorter claims
	room  time.Duration // the time for a burst
	poll  time.Duration // the pause after a denied attempt
	burst int           // the most attempts in a burst, including those that a shorter claim denies
}

// targets returns a target for each claim, in order of increasing window.
func (c Config) targets() (all []target) {
	claims := slices.SortedFunc(slices.Values(c.Claims), func(a, b window.Limit) int { return int(a.Per - b.Per) })
	for i, l := range claims {
		t := target{Limit: l, drain: l.Per + late(l) + l.Per/500 + 5*time.Millisecond, burst: int(min(l.Max, int64(c.MaxAttempts))) + 2}
		t.poll = max(l.Per/time.Duration(min(4*l.Max, 1<<30)), time.Millisecond)
		for _, shorter := range claims[:i] {
			t.fill = max(t.fill, time.Duration((l.Max-1)/shorter.Max)*(shorter.Per+late(shorter)))
			t.poll = min(t.poll, max(shorter.Per/4, time.Millisecond))
		}
		t.fill = min(t.fill, l.Per)
		t.room = t.fill + min(l.Per/8, 10*time.Second)
		t.burst += int(t.fill / t.poll)
		all = append(all, t)
	}
	return all
}

// parallel is the name of the only attack in which attempts overlap.
const parallel = "parallel"

// attack is a pattern of attempts. takes returns an upper bound on its duration, and tries an upper
// bound on its number of attempts.
type attack struct {
	name  string
	why   string // what it tests
	takes func(t target) time.Duration
	tries func(t target) int
	run   func(r *runner, t target)
}

const (
	parallelAttempts = 24
	openAttempts     = 4 // units that are left for the concurrent attempts
	rounds           = 2
)

// attacks lists all attacks, the most revealing first.
var attacks = []attack{
	{
		"burst", "how much is allowed at once",
		func(t target) time.Duration { return t.room },
		func(t target) int { return t.burst },
		func(r *runner, t target) { r.burst(t) },
	},
	{
		"all the time", "how much is allowed beyond a burst, and at the boundary of a clock-aligned fixed window",
		func(t target) time.Duration { return t.drain + t.Per + retryTime(t) },
		func(t target) int { return retryAttempts(t, retryTime(t)) },
		func(r *runner, t target) {
			r.sleep(t.drain)
			r.sleep(untilLastQuarter(r.clock.now(), t.Per))
			r.retryFor(t, retryTime(t))
		},
	},
	{
		"end of a window", "how much is allowed at the end of a window that the first attempt opened",
		func(t target) time.Duration { return t.drain + t.Per + t.Per/4 },
		func(t target) int { return 1 + retryAttempts(t, t.room+t.Per/4) },
		func(r *runner, t target) {
			r.sleep(t.drain)
			r.try()
			r.sleep(t.Per - t.room)
			r.retryFor(t, t.room+t.Per/4)
		},
	},
	{
		"after a rest", "whether all units come back, and in time",
		func(t target) time.Duration { return 2 * (t.drain + t.room) },
		func(t target) int { return 2 * t.burst },
		func(r *runner, t target) {
			for range 2 {
				r.sleep(t.drain)
				r.burst(t)
			}
		},
	},
	{
		"retry at the wait", "whether waits are long enough, and no longer than needed",
		func(t target) time.Duration { return 4*(t.drain+t.room) + t.Per/2 },
		func(t target) int { return 4*t.burst + 64 },
		func(r *runner, t target) {
			r.sleep(t.drain)
			for _, retry := range []func(*runner, target){exactly, exactly, early, halving} {
				retry(r, t)
			}
		},
	},
	{
		parallel, "whether concurrent attempts are counted one by one",
		func(t target) time.Duration { return rounds * (t.drain + t.room) },
		func(t target) int { return rounds * (t.burst + parallelAttempts) },
		func(r *runner, t target) {
			for range rounds {
				r.sleep(t.drain)
				r.atOnce(t)
			}
		},
	},
	{
		"just below the rate", "whether a client that keeps the limit is ever denied",
		func(t target) time.Duration { return t.drain + 2*t.drain },
		func(t target) int { return 2 * t.burst },
		func(r *runner, t target) {
			r.sleep(t.drain)
			r.flow(2*t.drain, func() time.Duration { return t.drain / time.Duration(t.Max) })
		},
	},
	{
		"just above the rate", "whether small excesses add up",
		func(t target) time.Duration { return 2 * t.Per },
		func(t target) int { return 3 * t.burst },
		func(r *runner, t target) {
			r.flow(2*t.Per, func() time.Duration { return t.Per * 10 / 11 / time.Duration(t.Max) })
		},
	},
	{
		"random flow", "what happens to clients that ignore the limit",
		func(t target) time.Duration { return 3 * t.Per },
		func(t target) int { return 6*t.burst + 20 },
		func(r *runner, t target) {
			random := rand.New(rand.NewPCG(1, 2)) // fixed, so that every audit uses the same sequence
			mean := float64(t.Per) / (1.5 * float64(t.Max))
			r.flow(3*t.Per, func() time.Duration { return time.Duration(random.ExpFloat64() * mean) })
		},
	},
}

func retryTime(t target) time.Duration { return t.Per + t.Per/4 }

// retryAttempts returns the maximum number of attempts that retryFor makes within d.
func retryAttempts(t target, d time.Duration) int { return int(d/t.poll) + 3*t.burst }

// untilLastQuarter returns the time from now until the last quarter of a clock-aligned window
// starts.
func untilLastQuarter(now time.Time, per time.Duration) time.Duration {
	begin := now.Truncate(per).Add(per - per/4)
	if begin.Before(now) {
		begin = begin.Add(per)
	}
	return begin.Sub(now)
}

// burst makes attempts until a denial shows that Max is used up, or until t.burst or t.room is
// exhausted. It returns the last attempt.
func (r *runner) burst(t target) (last Attempt) {
	end := r.since() + t.room
	for tries := 0; tries < t.burst && r.since() <= end; {
		if last = r.try(); last.Answer == AnswerDenied && (t.fill == 0 || r.since() > end-t.room/8) {
			break
		}
		tries++
		if last.Answer != AnswerAllowed {
			r.sleep(t.poll)
		}
	}
	return last
}

// retryFor makes attempts for the duration d. It pauses only after an attempt that was not allowed.
func (r *runner) retryFor(t target, d time.Duration) {
	end := r.since() + d
	for left := retryAttempts(t, d); left > 0 && r.since() < end && !r.ended(); left-- {
		if r.try().Answer != AnswerAllowed {
			r.sleep(t.poll)
		}
	}
}

// flow makes attempts for the duration d, at the intervals that rest returns.
func (r *runner) flow(d time.Duration, rest func() time.Duration) {
	begin := r.since()
	for at := begin; at < begin+d && !r.ended(); at += rest() {
		r.sleep(at - r.since())
		r.try()
	}
}

// exactly retries as soon as the wait is certainly over.
func exactly(r *runner, t target) {
	if d := r.burst(t); d.Answer == AnswerDenied && d.RetryAfter > 0 {
		r.sleep(r.waitOver(d) - r.since())
		r.try()
	}
}

// early retries a millisecond before the wait ends. If that attempt is denied, early retries again
// when the new wait is over.
func early(r *runner, t target) {
	d := r.burst(t)
	if d.Answer != AnswerDenied || d.RetryAfter <= 0 {
		return
	}
	r.sleep(d.Sent + d.RetryAfter - time.Millisecond - r.since())
	if again := r.try(); again.Answer == AnswerDenied {
		r.sleep(r.waitOver(again) - r.since())
		r.try()
	}
}

// halving retries after half the wait, and after each further denial, after half of the wait that
// the denial reports.
func halving(r *runner, t target) {
	d := r.burst(t)
	for left := 40; left > 0 && d.Answer == AnswerDenied && d.RetryAfter > 0 && !r.ended(); left-- {
		r.sleep(max(d.RetryAfter/2, 2*time.Millisecond))
		d = r.try()
	}
}

// waitOver returns the time at which the wait reported by the denial d is certainly over.
func (r *runner) waitOver(d Attempt) time.Duration {
	if r.clock != nil {
		return d.Came + d.RetryAfter
	}
	return d.Came + time.Duration(float64(d.RetryAfter)/(1-realDrift)) + 2*realStep
}

// atOnce uses up all units except openAttempts, and then makes parallelAttempts concurrent
// attempts.
func (r *runner) atOnce(t target) {
	end := r.since() + t.room*3/4
	for left := t.Max - openAttempts; left > 0 && r.since() < end && !r.ended(); left-- {
		if r.try().Answer != AnswerAllowed {
			r.sleep(t.poll)
		}
	}
	var group sync.WaitGroup
	start := make(chan struct{})
	for range parallelAttempts {
		group.Go(func() {
			<-start
			r.try()
		})
	}
	close(start)
	group.Wait()
}

// runner makes attempts and logs them.
type runner struct {
	ctx     context.Context
	attempt Func
	clock   *Clock
	began   time.Time
	name    string        // of the attack
	end     time.Duration // of the attack
	left    int           // attempts that the attack may still make

	performed, inconclusive []string // attacks that had a result, and those that had none, with the reason

	mu      sync.Mutex
	order   int64
	log     []Attempt
	answers int
	failed  error // the last error of an attempt
	fails   int   // consecutive errors of sequential attempts
}

func (r *runner) since() time.Duration { return r.clock.now().Sub(r.began) }

// ended reports whether the attack is over.
func (r *runner) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left <= 0 || r.since() >= r.end || r.ctx.Err() != nil || r.fails >= mostFailures
}

// sleep waits for d, or until the attack's time is over.
func (r *runner) sleep(d time.Duration) {
	if d = min(d, r.end-r.since()); d > 0 {
		r.clock.sleep(r.ctx.Done(), d)
	}
}

// try makes an attempt. It returns the zero Attempt if the attack is over.
func (r *runner) try() Attempt {
	a, ok := r.begin()
	if !ok {
		return Attempt{}
	}
	allowed, wait, err := r.attempt(r.ctx)
	switch {
	case err != nil:
		a.Answer = AnswerUnknown
	case allowed:
		a.Answer = AnswerAllowed
	default:
		a.Answer, a.RetryAfter = AnswerDenied, wait
	}
	return r.finish(a, err)
}

func (r *runner) begin() (Attempt, bool) {
	if r.ended() {
		return Attempt{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left--; r.left < 0 {
		return Attempt{}, false
	}
	r.order++
	return Attempt{Attack: r.name, begun: r.order, Sent: r.since()}, true
}

func (r *runner) finish(a Attempt, err error) Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.Came = r.since()
	r.order++
	a.ended = r.order
	if err == nil {
		r.fails, r.answers = 0, r.answers+1
	} else if r.failed = err; a.Attack != parallel && r.ctx.Err() == nil { // concurrent attempts may overload it, and none succeeds after the context is done
		r.fails++
	}
	r.log = append(r.log, a)
	return a
}
