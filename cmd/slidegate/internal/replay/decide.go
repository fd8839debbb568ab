package replay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sync/errgroup"

	"github.com/slidegate/slidegate/cmd/slidegate/charts"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/connect"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/estimator"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/window"
)

const (
	inFlight = 128     // the number of workers with Redis; each waits for one reply at a time
	ahead    = 1024    // the maximum number of attempts waiting for a worker
	maxIdle  = 1 << 16 // the maximum number of idle events for which tallies are kept
)

// replay decides on the attempts of a log, at the times in the log. Each event is assigned to a
// fixed worker, which decides on its attempts one after another, in order. Workers run in parallel.
type replay struct {
	sets     flags.Sets
	how      estimator.Estimator
	redis    connect.Addresses
	client   rueidis.Client // nil means in memory
	name     string         // of the limiters in Redis
	timeline bool           // whether to count attempts over time, for a chart
	seed     maphash.Seed
	workers  []*worker
}

// newReplay creates the workers. Together, they keep the tallies of at most the given number of
// idle events.
func newReplay(ctx context.Context, sets flags.Sets, how estimator.Estimator, redis connect.Addresses, timeline bool, keep int) (r *replay, err error) {
	r = &replay{sets: sets, how: how, redis: redis, timeline: timeline, seed: maphash.MakeSeed(), name: "replay"}
	workers := runtime.GOMAXPROCS(0)
	if len(redis.InitAddress) > 0 {
		if r.client, err = redis.Connect(ctx); err != nil {
			return nil, interrupted(ctx, fmt.Errorf("%w, or leave out --redis to decide in memory", err))
		}
		workers, r.name = inFlight, "slidegate-replay-"+strings.ToLower(rand.Text())
	}
	for range workers {
		w, err := newWorker(r, keep/workers)
		if err != nil {
			r.close()
			return nil, err
		}
		r.workers = append(r.workers, w)
	}
	return r, nil
}

func (r *replay) close() {
	if r.client != nil {
		r.client.Close()
	}
}

// limiter creates the limiter for a set. Its name in Redis is unique to this run.
func (r *replay) limiter(set int, now func() time.Time) (estimator.Limiter, error) {
	name := r.name
	if len(r.sets) > 1 {
		name = fmt.Sprint(r.name, "-", set+1)
	}
	return r.how.Limiter(r.client, window.Config{Name: name, Limits: r.sets[set], Now: now, Timeout: connect.Timeout})
}

// run decides on all attempts. Afterwards, even after an error, it removes the keys that it wrote
// to Redis.
func (r *replay) run(ctx context.Context, log *logs.Reader) error {
	err := r.decideAll(ctx, log)
	err = interruptedAfter(ctx, err, r.decided())
	if r.client == nil || !r.wrote() {
		return err
	}
	left := r.forget(context.WithoutCancel(ctx))
	if left == nil {
		return err
	}
	if err == nil {
		err = left
	}
	return fmt.Errorf("%w; keys named %s* may stay there until they expire, up to a day after their units are forgotten", err, r.name)
}

// decideAll sends the attempts to the workers. It stops at the first error.
func (r *replay) decideAll(ctx context.Context, log *logs.Reader) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, w := range r.workers {
		g.Go(func() error { return w.work(ctx) })
	}
	g.Go(func() error {
		defer r.endOfLog()
		return r.handOut(ctx, log)
	})
	return g.Wait()
}

func (r *replay) handOut(ctx context.Context, log *logs.Reader) error {
	return each(ctx, log, func(a logs.Attempt) {
		r.workers[maphash.String(r.seed, a.Event)%uint64(len(r.workers))].attempts <- a
	})
}

// each calls do for each attempt of a log, until ctx is done.
func each(ctx context.Context, log *logs.Reader, do func(logs.Attempt)) error {
	for ctx.Err() == nil {
		a, err := log.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		do(a)
	}
	return ctx.Err()
}

func (r *replay) endOfLog() {
	for _, w := range r.workers {
		close(w.attempts)
	}
}

func (r *replay) decided() (attempts int) {
	for _, w := range r.workers {
		attempts += w.sets[0].allowed + w.sets[0].denied
	}
	return attempts
}

// wrote reports whether Redis may contain keys written by this run.
func (r *replay) wrote() bool {
	return r.decided() > 0 || slices.ContainsFunc(r.workers, func(w *worker) bool { return w.uncertain })
}

// forget removes the keys of all events from Redis.
func (r *replay) forget(ctx context.Context) error {
	var g errgroup.Group
	for _, w := range r.workers {
		g.Go(func() error { return w.forgetAll(ctx) })
	}
	return g.Wait()
}

// worker decides on the attempts of some of the events.
type worker struct {
	r         *replay
	attempts  chan logs.Attempt
	limiters  []estimator.Limiter // one per set
	now       time.Time           // the time of the current attempt
	uncertain bool                // a failed call may have been counted
	sets      []*outcome
	allowed   []bool           // whether each set allows the current attempt
	timeline  *charts.Timeline // nil if no picture was requested
	tallies
}

func newWorker(r *replay, keep int) (*worker, error) {
	w := &worker{r: r, attempts: make(chan logs.Attempt, ahead), allowed: make([]bool, len(r.sets)), tallies: newTallies(r.sets, r.how, keep)}
	if r.timeline {
		w.timeline = charts.NewTimeline(len(r.sets))
	}
	for i, limits := range r.sets {
		l, err := r.limiter(i, func() time.Time { return w.now })
		if err != nil {
			return nil, err
		}
		w.limiters = append(w.limiters, l)
		w.sets = append(w.sets, newOutcome(limits))
	}
	return w, nil
}

// work decides on attempts until the log ends. After an error, it discards the remaining attempts,
// so that the sender does not block.
func (w *worker) work(ctx context.Context) (err error) {
	for a := range w.attempts {
		if err == nil {
			err = w.decide(ctx, a)
		}
	}
	return err
}

// decide calls the limiters for each attempt of a line, and counts the decisions. It does not
// cancel a call that has begun, because Redis could still execute it at any later time.
func (w *worker) decide(ctx context.Context, a logs.Attempt) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	ctx = context.WithoutCancel(ctx)
	t := w.tallyOf(a.Event, a.At)
	w.now = a.At
	for range a.Times {
		t.attempts++
		for i, l := range w.limiters {
			d, err := w.ask(ctx, l, a)
			if err != nil {
				return err
			}
			w.sets[i].count(a, d, &t.sets[i])
			w.allowed[i] = d.Allowed
		}
		if w.timeline != nil {
			w.timeline.Add(a.At, w.allowed)
		}
	}
	return w.sweep(ctx, w.forget)
}

// ask returns a limiter's decision. If an attempt has more units than Max, the decision is a denial
// without a wait.
func (w *worker) ask(ctx context.Context, l estimator.Limiter, a logs.Attempt) (window.Decision, error) {
	d, err := l.AllowN(ctx, a.Event, a.Units)
	if errors.Is(err, window.ErrExceedsLimit) {
		return window.Decision{}, nil
	}
	if err != nil && w.r.client != nil {
		w.uncertain = w.uncertain || errors.Is(err, window.ErrUncertain)
		err = w.r.failed(err)
	}
	return d, err
}
