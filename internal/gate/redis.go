package gate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/remote"
)

// Redis is a State that a script keeps in Redis. What scripts take and reply, their heads say.
type Redis[U any] struct {
	L      *Limiter[U]
	runner *remote.Runner
	args   [][]string          // of each limit
	all    []string            // of all
	ones   map[string][]string // all that the script is told of decisions about one unit, by its own clock

	denials *denials[U] // nil: none are remembered
}

// NewRedis keeps the state of the limiter by the script, in the Redis behind client.
func NewRedis[U any](client rueidis.Client, script string, l *Limiter[U]) (*Redis[U], error) {
	if client == nil {
		return nil, fmt.Errorf("slidegate: limiter %q has no client; pass one from rueidis.NewClient, or use NewLocal", l.Name)
	}
	r := &Redis[U]{L: l, runner: remote.New(client, script, l.Timeout, l.turned)}
	for _, limit := range l.Limits {
		r.args = append(r.args, limit.args())
	}
	r.all = slices.Concat(r.args...)
	r.ones = map[string][]string{}
	for _, v := range []Verb{Allow, Count, Peek} {
		r.ones[string(v)] = append([]string{string(v), "", "1"}, r.all...)
	}
	if l.DenialCache > 0 {
		r.denials = newDenials(r, l.DenialCache)
	}
	return r, nil
}

// args are those that a script takes for the limit.
func (l Limit) args() []string {
	args := []string{integer(l.Per.Milliseconds()), integer(l.Max)}
	if l.Resolution != 0 {
		args = append(args, integer(l.Resolution.Milliseconds()))
	}
	return args
}

// Decide answers an attempt.
func (r *Redis[U]) Decide(ctx context.Context, v Verb, event string, n int64) (Decision[U], error) {
	if r.denials != nil && v == Allow && !r.denials.off.Load() {
		return r.denials.decide(ctx, event, n)
	}
	reply, err := r.run(ctx, string(v), event, n, r.all...)
	if err != nil {
		return Decision[U]{}, err
	}
	return r.decision(v, event, n, reply)
}

// DecideEach answers an attempt of one unit for each event, and tells the answer to that in each place.
func (r *Redis[U]) DecideEach(ctx context.Context, v Verb, events []string, tell func(i int, d Decision[U], err error)) {
	args, err := r.arguments(string(v), 1, r.all...)
	keys := make([]string, len(events))
	for i, event := range events {
		keys[i] = r.L.Key(event)
	}
	var answers []remote.Answer
	if err == nil {
		answers = r.runner.RunEach(ctx, keys, args)
	} else {
		answers = slices.Repeat([]remote.Answer{{Err: err}}, len(keys))
	}
	for i, a := range answers {
		var d Decision[U]
		if a.Err == nil {
			d, a.Err = r.decision(v, events[i], 1, a.Integers)
		}
		tell(i, d, a.Err)
	}
}

// decision is what the script's reply says.
func (r *Redis[U]) decision(v Verb, event string, n int64, reply []int64) (Decision[U], error) {
	limits := len(r.L.Limits)
	if len(reply) != 2+3*limits {
		err := fmt.Errorf("the script replied %d integers for %d limits", len(reply), limits)
		return Decision[U]{}, remote.Explain(err, r.L.Key(event), string(v))
	}
	d := Decision[U]{Allowed: reply[0] == 1, At: r.L.Clock.Time(reply[1]).UTC(), Usage: make([]U, 0, limits)}
	if v == Count || v == Allow && d.Allowed {
		d.Counted = n
	}
	for i := range limits {
		r.L.Use(&d, i, reply[3*i+2], reply[3*i+3], reply[3*i+4])
	}
	return d, nil
}

// Use adds the usage of a limit to a decision; waits are in ms.
func (l *Limiter[U]) Use(d *Decision[U], limit int, used, retry, reset int64) {
	remaining, retryAfter := max(0, l.Limits[limit].Max-used), Milliseconds(retry)
	if len(d.Usage) == 0 || remaining < d.Remaining {
		d.Remaining = remaining
	}
	if !d.Allowed {
		d.RetryAfter = max(d.RetryAfter, retryAfter)
	}
	d.Usage = append(d.Usage, l.Usage(limit, used, remaining, retryAfter, Milliseconds(reset)))
}

// Refund takes back what d counted, from those limits that it counted in.
func (r *Redis[U]) Refund(ctx context.Context, event string, d Decision[U]) error {
	var args []string
	for i, limit := range r.args {
		if r.L.CountedIn(d, i) {
			args = append(args, limit...)
		}
	}
	if args == nil {
		return nil
	}
	defer r.forget(event)
	_, err := r.run(ctx, "refund", event, min(d.Counted, r.L.Most), append(args, integer(r.L.Clock.Unit(d.At)))...)
	return err
}

// CountedIn tells whether the decision counted in a limit. One without Usage may have, in any.
func (l *Limiter[U]) CountedIn(d Decision[U], limit int) bool {
	return len(d.Usage) == 0 || slices.ContainsFunc(d.Usage, func(u U) bool { return l.PerOf(u) == l.Limits[limit].Per })
}

// Reset forgets the event.
func (r *Redis[U]) Reset(ctx context.Context, event string) error {
	defer r.forget(event)
	_, err := r.run(ctx, "reset", event, 1, r.all...)
	return err
}

// forget forgets a denial, which the client would be told of a little later.
func (r *Redis[U]) forget(event string) {
	if r.denials != nil {
		r.denials.forget(event)
	}
}

// Inspect is the script's own answer, if it is whole for so many limits.
func (r *Redis[U]) Inspect(ctx context.Context, event string, whole func(reply []int64, limits int) bool) ([]int64, error) {
	reply, err := r.run(ctx, "inspect", event, 1, r.all...)
	if err == nil && !whole(reply, len(r.args)) {
		err = fmt.Errorf("the script replied %d integers that are no snapshot of %d limits", len(reply), len(r.args))
	}
	return reply, err
}

func (r *Redis[U]) run(ctx context.Context, verb, event string, n int64, more ...string) ([]int64, error) {
	args, err := r.arguments(verb, n, more...)
	if err != nil {
		return nil, err
	}
	return r.runner.Run(ctx, r.L.Key(event), args)
}

// arguments are what the script is told.
func (r *Redis[U]) arguments(verb string, n int64, more ...string) ([]string, error) {
	if args := r.ones[verb]; args != nil && n == 1 && r.L.Clock.Now == nil {
		return args, nil
	}
	now, err := r.now()
	return append([]string{verb, now, integer(n)}, more...), err
}

// now is the time that the script is told: that of the configuration, or none.
func (r *Redis[U]) now() (string, error) {
	if r.L.Clock.Now == nil {
		return "", nil
	}
	now, err := r.L.Clock.Read()
	return integer(now), err
}

func integer(n int64) string { return strconv.FormatInt(n, 10) }

// Milliseconds is a span of n ms, or of 290 years, if that is less: a Duration ends at 292.
func Milliseconds(n int64) time.Duration {
	const longest = 290 * 365 * 24 * time.Hour
	return time.Duration(min(n, longest.Milliseconds())) * time.Millisecond
}
