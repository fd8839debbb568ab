package audit

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/slidegate/slidegate/window"
)

// target is a limit to attack, and the times and numbers that follow from it.
type target struct {
	window.Limit
	drain time.Duration // the time after which a limiter has forgotten everything
	room  time.Duration // the time for a burst
	poll  time.Duration // the pause after a denied attempt
	burst int           // the most attempts in a burst
}

func newTarget(l window.Limit) target {
	return target{
		Limit: l,
		drain: l.Per + late(l) + l.Per/500 + 5*time.Millisecond,
		room:  min(l.Per/8, 10*time.Second),
		poll:  max(l.Per/time.Duration(4*l.Max), time.Millisecond),
		burst: int(l.Max) + 2,
	}
}

// parallel is the name of the only attack in which attempts overlap.
const parallel = "parallel"

// attack is a pattern of attempts. takes returns an upper bound on its duration.
type attack struct {
	name  string
	takes func(t target) time.Duration
	run   func(r *runner, t target)
}

const (
	parallelAttempts = 24
	openAttempts     = 4 // units that are left for the concurrent attempts
	rounds           = 2
)

// attacks lists all attacks. The comment on each says what it tests.
var attacks = []attack{
	{ // how much is allowed at once
		"burst",
		func(t target) time.Duration { return t.room },
		func(r *runner, t target) { r.burst(t) },
	},
	{ // how much is allowed beyond a burst, and at the boundary of a clock-aligned fixed window
		"all the time",
		func(t target) time.Duration { return t.drain + t.Per + retryTime(t) },
		func(r *runner, t target) {
			r.sleep(t.drain)
			r.sleep(untilLastQuarter(time.Now(), t.Per))
			r.retryFor(t, retryTime(t))
		},
	},
	{ // how much is allowed at the end of a window that the first attempt opened
		"end of a window",
		func(t target) time.Duration { return t.drain + t.Per + t.Per/4 },
		func(r *runner, t target) {
			r.sleep(t.drain)
			r.try()
			r.sleep(t.Per - t.room)
			r.retryFor(t, t.room+t.Per/4)
		},
	},
	{ // whether all units come back, and in time
		"after a rest",
		func(t target) time.Duration { return 2 * (t.drain + t.room) },
		func(r *runner, t target) {
			for range 2 {
				r.sleep(t.drain)
				r.burst(t)
			}
		},
	},
	{ // whether waits are long enough, and no longer than needed
		"retry at the wait",
		func(t target) time.Duration { return 4*(t.drain+t.room) + t.Per/2 },
		func(r *runner, t target) {
			r.sleep(t.drain)
			for _, retry := range []func(*runner, target){exactly, exactly, early, halving} {
				retry(r, t)
			}
		},
	},
	{ // whether concurrent attempts are counted one by one
		parallel,
		func(t target) time.Duration { return rounds * (t.drain + t.room) },
		func(r *runner, t target) {
			for range rounds {
				r.sleep(t.drain)
				r.atOnce(t)
			}
		},
	},
	{ // whether a client that keeps the limit is ever denied
		"just below the rate",
		func(t target) time.Duration { return 3 * t.drain },
		func(r *runner, t target) {
			r.sleep(t.drain)
			r.flow(2*t.drain, func() time.Duration { return t.drain / time.Duration(t.Max) })
		},
	},
	{ // whether small excesses add up
		"just above the rate",
		func(t target) time.Duration { return 2 * t.Per },
		func(r *runner, t target) {
			r.flow(2*t.Per, func() time.Duration { return t.Per * 10 / 11 / time.Duration(t.Max) })
		},
	},
	{ // what happens to clients that ignore the limit
		"random flow",
		func(t target) time.Duration { return 3 * t.Per },
		func(r *runner, t target) {
			random := rand.New(rand.NewPCG(1, 2)) // fixed, so that every audit uses the same sequence
			mean := float64(t.Per) / (1.5 * float64(t.Max))
			r.flow(3*t.Per, func() time.Duration { return time.Duration(random.ExpFloat64() * mean) })
		},
	},
}

func retryTime(t target) time.Duration { return t.Per + t.Per/4 }

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
	for tries := 0; tries < t.burst && r.since() <= end; tries++ {
		switch last = r.try(); last.Answer {
		case AnswerDenied:
			return last
		case AnswerUnknown:
			r.sleep(t.poll)
		case AnswerAllowed:
		}
	}
	return last
}

// retryFor makes attempts for the duration d, but no more than a limiter without a limit needs to
// be found. It pauses only after an attempt that was not allowed.
func (r *runner) retryFor(t target, d time.Duration) {
	end := r.since() + d
	for left := int(d/t.poll) + 3*t.burst; left > 0 && r.since() < end && !r.ended(); left-- {
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
		r.sleep(waitOver(d) - r.since())
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
		r.sleep(waitOver(again) - r.since())
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
func waitOver(d Attempt) time.Duration { return d.Came + longer(d.RetryAfter) + 2*step }

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
	began   time.Time
	attack  string        // the name of the present attack
	end     time.Duration // of the present attack

	mu     sync.Mutex
	order  int64
	log    []Attempt
	failed error // the last error of an attempt
	fails  int   // consecutive errors
}

func (r *runner) since() time.Duration { return time.Since(r.began) }

// ended reports whether the attack is over.
func (r *runner) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since() >= r.end || r.ctx.Err() != nil || r.fails >= mostFailures
}

// sleep waits for d, or until the attack's time is over.
func (r *runner) sleep(d time.Duration) {
	if d = min(d, r.end-r.since()); d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.ctx.Done():
	}
}

// try makes an attempt. It returns the zero Attempt if the attack is over.
func (r *runner) try() Attempt {
	if r.ended() {
		return Attempt{}
	}
	a := r.begin()
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

func (r *runner) begin() Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order++
	return Attempt{Attack: r.attack, begun: r.order, Sent: r.since()}
}

func (r *runner) finish(a Attempt, err error) Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.Came = r.since()
	r.order++
	a.ended = r.order
	if r.fails++; err == nil {
		r.fails = 0
	} else {
		r.failed = err
	}
	r.log = append(r.log, a)
	return a
}
