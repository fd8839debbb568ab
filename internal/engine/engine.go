// Package engine decides requests for limiters of every kind: on Redis by their script, or in memory. It speaks integers,
// as the scripts do. The packages window and ar1 turn its replies into decisions.
//
// The way of a request on Redis: Limiter.Decide (engine.go), redis.Decide (redis.go), call.run (call.go), which puts the
// request into the queue of its slot range. A sender takes what is queued (queue.go) and sends it as one batch (batch.go).
package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/keys"
)

// Limiter decides about events. It comes from New or NewLocal.
type Limiter struct {
	Config
	store  Store
	redis  *redis // the same as store, nil in memory
	prefix string // of each key
	suffix string
}

// Store holds the counts of a limiter, in Redis or in memory.
type Store interface {
	// Decide answers a request for n units. It counts them if the verb says so.
	Decide(ctx context.Context, v Verb, event string, n int64) (Reply, error)
	// Refund gives back the units of a charge.
	Refund(ctx context.Context, event string, c Charge) error
	// Reset forgets an event.
	Reset(ctx context.Context, event string) error
	// Inspect returns the integers of the script's verb inspect.
	Inspect(ctx context.Context, event string) ([]int64, error)
}

// Verb says what a request does with its units, in the words of the scripts.
type Verb string

// The verbs of a request.
const (
	Allow Verb = "allow" // count them if they fit
	Count Verb = "count" // count them in any case
	Peek  Verb = "peek"  // count nothing
	Wait  Verb = "wait"  // Allow for a caller that waits: a Fallback does not count its denials either
)

// stored returns the verb that a Store knows.
func (v Verb) stored() Verb {
	if v == Wait {
		return Allow
	}
	return v
}

// Charge is what a decision counted, so that it can be given back.
type Charge struct {
	Units  int64
	At     int64 // in units of the clock
	Limits []int // indices of the limits that counted it
}

// Errors of the caller. The packages of the limiters export them by the same names.
var (
	ErrEmptyEvent   = errors.New("the event is empty; refuse the request, or name its subject")
	ErrCost         = errors.New("an attempt costs at least 1 unit")
	ErrExceedsLimit = errors.New("more units than a limit ever admits; ask for fewer, or raise its Max")
)

// New returns a limiter on Redis.
func New(client rueidis.Client, cfg Config) (*Limiter, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if client == nil {
		return nil, fmt.Errorf("slidegate: limiter %q has no client; pass one from rueidis.NewClient, or use NewLocal", cfg.Name)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	l := newLimiter(cfg)
	l.redis = newRedis(client, l)
	l.store = l.redis
	return l, nil
}

// NewLocal returns a limiter in memory, on a store made for the same configuration.
func NewLocal(cfg Config, store Store) (*Limiter, error) {
	if err := cfg.checkMemory(); err != nil {
		return nil, err
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	l := newLimiter(cfg)
	l.store = store
	return l, nil
}

func newLimiter(cfg Config) *Limiter {
	return &Limiter{Config: cfg, prefix: cfg.Name + ":{", suffix: "}:" + cfg.Kind}
}

// Key returns the Redis key of an event: the name, the event as hash tag, the kind of record.
func (l *Limiter) Key(event string) string { return l.prefix + keys.Tag(l.Secret, event) + l.suffix }

// Attempt returns the verb of an attempt.
func (l *Limiter) Attempt() Verb {
	if l.CountDenied {
		return Count
	}
	return Allow
}

// Decide answers a request for n units of an event. If Redis cannot answer, the Fallback does.
func (l *Limiter) Decide(ctx context.Context, v Verb, event string, n int64) (Reply, error) {
	if err := l.Check(ctx, event, n); err != nil {
		return Reply{}, err
	}
	r, err := l.store.Decide(ctx, v.stored(), event, n)
	if err != nil {
		return l.fallBack(ctx, v, event, n, r.Trace, err)
	}
	return r, nil
}

// An Answer is a Reply, or the reason why there is none.
type Answer struct {
	Reply
	Err error
}

// AttemptEach answers an attempt of one unit for each event, in order.
func (l *Limiter) AttemptEach(ctx context.Context, events []string) []Answer {
	v, answers := l.Attempt(), make([]Answer, len(events))
	if l.redis == nil {
		for i, event := range events {
			answers[i].Reply, answers[i].Err = l.Decide(ctx, v, event, 1)
		}
		return answers
	}
	var indices []int
	for i, event := range events {
		if answers[i].Err = l.Check(ctx, event, 1); answers[i].Err == nil {
			indices = append(indices, i)
		}
	}
	l.redis.decideEach(ctx, v, events, indices, answers)
	for _, i := range indices {
		if err := answers[i].Err; err != nil {
			answers[i].Reply, answers[i].Err = l.fallBack(ctx, v, events[i], 1, answers[i].Trace, err)
		}
	}
	return answers
}

// fallBack has the Fallback answer if cause is an outage. Whether its denials count is its own affair. If it cannot answer
// either, the error is that of Redis, which says whether the request was counted there.
func (l *Limiter) fallBack(ctx context.Context, v Verb, event string, n int64, trace Trace, cause error) (Reply, error) {
	failed := Reply{Trace: trace}
	if l.Fallback == nil || !isOutage(cause) || ctx.Err() != nil {
		return failed, l.wrap(cause)
	}
	if v != Peek && v != Wait {
		v = l.Fallback.Attempt()
	}
	r, err := l.Fallback.Decide(ctx, v, event, n)
	if err != nil {
		return failed, l.wrap(fmt.Errorf("%w; nor does the Fallback decide: %v", cause, err)) //nolint:errorlint // it must match the cause alone
	}
	r.Degraded, r.Trace = true, trace
	return r, nil
}

// Sleep waits until a denied request for n units can be made again, and up to 5 % longer (at most 100 ms), so that waiters
// do not all come back at once. It returns an error at once if the deadline of ctx is sooner.
func (l *Limiter) Sleep(ctx context.Context, n int64, retryAfter time.Duration, degraded bool) error {
	if degraded {
		retryAfter = min(retryAfter, RecoveryDelay) // Redis may be back by then
	}
	err := context.DeadlineExceeded
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) >= retryAfter {
		err = sleep(ctx, retryAfter+time.Duration(rand.Float64()*float64(min(retryAfter/20, 100*time.Millisecond))))
	}
	if err != nil {
		return l.wrap(fmt.Errorf("a wait of %v for n = %d: %w", rounded(retryAfter), n, err))
	}
	return nil
}

// sleep sleeps for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Refund gives back what a decision of this limiter counted.
func (l *Limiter) Refund(ctx context.Context, event string, c Charge) error {
	if err := l.Check(ctx, event, 1); err != nil || len(c.Limits) == 0 {
		return err
	}
	return l.wrap(l.store.Refund(ctx, event, c))
}

// Reset forgets the event, in the Fallback too.
func (l *Limiter) Reset(ctx context.Context, event string) error {
	if err := l.Check(ctx, event, 1); err != nil {
		return err
	}
	err := l.wrap(l.store.Reset(ctx, event))
	if l.Fallback != nil {
		err = errors.Join(err, l.Fallback.Reset(ctx, event))
	}
	return err
}

// Inspect returns the state of an event, in the integers of the script's verb inspect. It never asks the Fallback.
func (l *Limiter) Inspect(ctx context.Context, event string) ([]int64, error) {
	if err := l.Check(ctx, event, 1); err != nil {
		return nil, err
	}
	reply, err := l.store.Inspect(ctx, event)
	return reply, l.wrap(err)
}

// Check refuses what could never be admitted, and what comes too late.
func (l *Limiter) Check(ctx context.Context, event string, n int64) error {
	switch {
	case event == "":
		return l.wrap(ErrEmptyEvent)
	case n < 1:
		return l.wrap(fmt.Errorf("%w, not %d", ErrCost, n))
	case ctx.Err() != nil:
		return l.wrap(notSent(ctx.Err()))
	}
	for i := range l.Limits {
		if n > l.Limits[i].Max {
			return l.wrap(fmt.Errorf("%d units under %s: %w", n, l.Limits[i].Text, ErrExceedsLimit))
		}
	}
	return nil
}

// wrap adds the name of the limiter to an error.
func (l *Limiter) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("slidegate: limiter %q: %w", l.Name, err)
}
