// Package remote runs the scripts of limiters on Redis: within the time that a caller has, never twice when a reply is lost, and not
// at all on a part of a cluster that is in trouble.
package remote

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/lua"
)

var (
	// ErrOutage says that Redis could not answer, and that nothing was counted.
	ErrOutage = errors.New("nothing was counted, since Redis cannot answer; try again later, or decide without it")
	// ErrUncertain says that no reply came.
	ErrUncertain = errors.New("no reply from Redis, so this may or may not have been counted; do not simply repeat it")
)

// IsOutage tells whether an error means that Redis could not answer, or not in time.
func IsOutage(err error) bool { return errors.Is(err, ErrOutage) || errors.Is(err, ErrUncertain) }

// Runner runs one script of one limiter, and learns from its calls which part of a cluster is in trouble.
type Runner struct {
	client  rueidis.Client
	source  string
	script  *rueidis.Lua
	sha1    atomic.Value  // of the source; none until a server told it, in FIPS mode
	timeout time.Duration // of one call; less than 0: none
	tell    func(part int, began bool)

	made      time.Time
	cluster   bool
	abandoned atomic.Int32 // calls that have not come back from rueidis, though their callers left
	turning   sync.Mutex
	parts     [parts]part
}

// New returns a Runner of a script. It tells of the begin and end of outages of a part, in turn for each.
func New(client rueidis.Client, source string, timeout time.Duration, tell func(part int, began bool)) *Runner {
	r := &Runner{
		client: client, source: source, script: lua.New(source), timeout: timeout, tell: tell,
		made: time.Now(), cluster: client.Mode() == rueidis.ClientModeCluster,
	}
	r.sha1.Store(lua.Hash(source))
	return r
}

// Run runs the script on one key, unless the part of the key is left alone. The first argument is the verb, as the scripts have it.
func (r *Runner) Run(ctx context.Context, key string, args []string) ([]int64, error) {
	return r.RunWithin(ctx, r.timeout, key, args)
}

// RunWithin is Run with a timeout of its own.
func (r *Runner) RunWithin(ctx context.Context, timeout time.Duration, key string, args []string) ([]int64, error) {
	c := r.call(ctx, args)
	c.key[0], c.keys, c.within = key, c.key[:], timeout
	a := c.runIn(r.partOf(key), c.keys)[0]
	c.free()
	return a.Integers, a.Err
}

// Look is the value of a key, by a GET that the client keeps the answer to until Redis tells it of a change, for ttl at most. It hits
// if the client knew it, and then Redis was not asked. Of a part that is left alone it knows nothing.
func (r *Runner) Look(ctx context.Context, timeout time.Duration, key string, ttl time.Duration) (value string, hit bool, err error) {
	part, began := r.partOf(key), time.Since(r.made)
	if r.parts[part].until.Load() != 0 {
		return "", false, nil
	}
	c := r.call(ctx, nil)
	defer c.free()
	c.key[0], c.keys, c.within, c.ttl = key, c.key[:], timeout, ttl
	_, up := c.end()
	a := c.exec(c.look, up)[0]
	if a.Err != nil { // one that succeeds ends no outage: a server that refuses what would count still answers a GET
		r.learn(ctx, part, began, a.Err)
	}
	if a.Err != nil {
		return "", false, Explain(a.Err, key, "peek")
	}
	return a.value, a.hit, nil
}

// RunEach runs the script on each key, in one pipeline for each part, side by side. Answers are in the order of the keys; a key that
// comes twice is decided about twice, in this order.
func (r *Runner) RunEach(ctx context.Context, keys, args []string) []Answer {
	of, answers := map[int][]int{}, make([]Answer, len(keys))
	for i, key := range keys {
		part := r.partOf(key)
		of[part] = append(of[part], i)
	}
	var group sync.WaitGroup
	most := max(1, mostAtOnce/max(1, len(of)))
	for part, places := range of {
		group.Go(func() { r.runPart(ctx, part, keys, slices.Chunk(places, most), args, answers) })
	}
	group.Wait()
	return answers
}

// mostAtOnce is how many keys are under way: more would wait for one another until their time is up.
const mostAtOnce = 4096

// runPart is RunEach for the keys in some places, all of one part. After a round in which nothing ran, or something got no reply in
// time, nothing more is sent.
func (r *Runner) runPart(ctx context.Context, part int, keys []string, places iter.Seq[[]int], args []string, answers []Answer) {
	var late error
	for some := range places {
		if err := ctx.Err(); err != nil {
			late = fmt.Errorf("nothing was sent: %w", err)
		}
		if late == nil {
			r.runSome(ctx, part, keys, some, args, answers)
		}
		for _, i := range some {
			if late != nil {
				answers[i].Err = late
			}
		}
		if late == nil {
			late = r.endsWith(some, answers)
		}
	}
}

// endsWith returns why a part gets no more rounds after the one in these places, or nil.
func (r *Runner) endsWith(places []int, answers []Answer) error {
	if slices.ContainsFunc(places, func(i int) bool { return errors.Is(answers[i].Err, errExpired) }) {
		return fmt.Errorf("%w: it was not sent, as others in the same call got no reply within %v", ErrOutage, r.timeout)
	}
	if !slices.ContainsFunc(places, func(i int) bool { return !IsOutage(answers[i].Err) }) {
		return fmt.Errorf("%w: it was not sent, as none of the others in the same call ran", ErrOutage)
	}
	return nil
}

func (r *Runner) runSome(ctx context.Context, part int, keys []string, places []int, args []string, answers []Answer) {
	some := make([]string, len(places))
	for k, i := range places {
		some[k] = keys[i]
	}
	c := r.call(ctx, args)
	defer c.free()
	c.keys = some
	for k, a := range c.runIn(part, some) {
		answers[places[k]] = a
	}
}

// runIn runs the script on the keys, all of one part.
func (c *call) runIn(part int, keys []string) []Answer {
	r, verb := c.runner, c.args[0]
	began := time.Since(r.made)
	may, probes := r.parts[part].enter(began)
	if !may {
		why, _ := r.parts[part].why.Load().(error)
		return c.fail(why)
	}
	answers := c.repeat(part, probes)
	i := slices.IndexFunc(answers, func(a Answer) bool { return a.Err == nil })
	r.learn(c.Context, part, began, answers[max(0, i)].Err)
	for i := range answers {
		if answers[i].Err != nil {
			answers[i] = Answer{Err: Explain(answers[i].Err, keys[i], verb)}
		}
	}
	return answers
}

// fail is an answer to each key.
func (c *call) fail(err error) []Answer { return slices.Repeat([]Answer{{Err: err}}, len(c.keys)) }

// repeat sends the script, and again for those keys for which it certainly did not run: for at most patience, while there is time, and
// not once others have found that the part is to be left alone. A repetition begins only with time to spare, since one that learns
// nothing would make a certain answer uncertain.
func (c *call) repeat(part int, probes bool) []Answer {
	end, up := c.end()
	began := time.Now()
	spare := min(end.Sub(began)/4, longestPause)
	keys, answers := c.keys, c.exec(c.run, up)
	spare = max(spare, 2*time.Since(began))
	for begin, pause := time.Now(), firstPause; ; pause = min(2*pause, longestPause) {
		open := unrun(keys, answers)
		if len(open) == 0 || time.Since(begin)+pause > patience || time.Until(end) < pause+spare {
			return answers
		}
		if c.runner.parts[part].until.Load() != 0 && !probes || Sleep(c.Context, pause) != nil || time.Until(end) < spare {
			return answers
		}
		sent := time.Now()
		c.again(keys, answers, open, up)
		spare = max(spare, 2*time.Since(sent))
	}
}

// again sends those in some places once more.
func (c *call) again(keys []string, answers []Answer, open []int, up <-chan time.Time) {
	some := make([]string, len(open))
	for k, i := range open {
		some[k] = keys[i]
	}
	reply, _ := rueidis.IsRedisErr(answers[open[0]].Err)
	c.keys, c.loads = some, reply != nil && reply.IsNoScript()
	for k, a := range c.exec(c.run, up) {
		answers[open[k]] = a
	}
}

// unrun are the places of those keys for which the script certainly did not run. What a key has got it gets in the first of its places.
func unrun(keys []string, answers []Answer) (open []int) {
	missing := map[string][]int(nil)
	for i := range answers {
		places := missing[keys[i]]
		switch {
		case answers[i].Err != nil && notRun(answers[i].Err):
			if missing == nil {
				missing = map[string][]int{}
			}
		case len(places) > 0:
			answers[i], answers[places[0]] = answers[places[0]], answers[i]
			places = places[1:]
		default:
			continue
		}
		missing[keys[i]] = append(places, i)
	}
	for _, places := range missing {
		open = append(open, places...)
	}
	slices.Sort(open)
	return open
}

// end is when there is no more time for a call, and what tells of it: by the timeout, if the context does not end before.
func (c *call) end() (end time.Time, up <-chan time.Time) {
	end, dated := c.Context.Deadline()
	timeout := c.within
	if timeout < 0 && !dated {
		return time.Now().Add(time.Hour), nil
	}
	if timeout < 0 || dated && time.Until(end) <= timeout {
		return end, nil
	}
	c.timer.Reset(timeout)
	return time.Now().Add(timeout), c.timer.C
}

var errExpired = errors.New("nothing came")

func (c *call) expired() error { return fmt.Errorf("%w within %v", errExpired, c.within) }

const (
	firstPause   = 5 * time.Millisecond  // before the first repetition; doubled each time
	longestPause = 40 * time.Millisecond // up to this
	patience     = time.Second           // how long a call is repeated that certainly did not run
)

// Sleep sleeps, unless ctx ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// notRun tells whether err proves that the script did not run, though it may if it is sent again.
func notRun(err error) bool {
	if reply, ok := rueidis.IsRedisErr(err); ok {
		return reply.IsTryAgain() || reply.IsNoScript() || reply.IsClusterDown() || reply.IsLoading() || strings.HasPrefix(reply.Error(), "MASTERDOWN")
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, rueidis.ErrNoSlot)
}

// Explain says what an error means for the count. The scripts write last and once, so an error reply means: not counted.
func Explain(err error, key, verb string) error {
	reply, isReply := rueidis.IsRedisErr(err)
	looks := verb == "peek" || verb == "inspect"
	switch {
	case isReply && ours(reply.Error()), errors.Is(err, errTooMany):
		return err
	case isReply || notRun(err) || looks:
		return fmt.Errorf("key %s: %w: %w", key, ErrOutage, err)
	}
	return fmt.Errorf("key %s: %w: %w", key, ErrUncertain, err)
}

// ours tells whether the script itself refused: it names the key and the remedy.
func ours(reply string) bool {
	return strings.HasPrefix(reply, "WRONGTYPE") || strings.HasPrefix(reply, "SLIDEGATE")
}
