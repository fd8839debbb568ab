package remote

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// A call is one that rueidis makes, in a goroutine of its own, since rueidis waits for connections and for a place in its queue
// whatever the context. It is also the context that rueidis gets: one that ends in error for a caller that left, so that
// nothing more is sent for it, but never in time. Else the end of one call would end the connecting that others wait for,
// and a deadline would have rueidis close the connection that others use.
type call struct {
	context.Context // the caller's
	runner          *Runner
	keys            []string // for each, the script is sent once
	args            []string
	loads           bool // the server does not know the script
	state           atomic.Int32
	answers         chan reply
	within          time.Duration // as the runner's timeout
	ttl             time.Duration // of what is looked at
	timer           *time.Timer   // of within
	run, look       func()        // are execute and read

	key [1]string // the array of keys, where there is one
	got [1]Answer // and of its answer, to the caller
}

// A reply is what rueidis got: one answer, or several.
type reply struct {
	one  Answer
	each []Answer
}

// An Answer is what the script replied about one key.
type Answer struct {
	Integers []int64
	Err      error

	value string // of the key, if that was looked at
	hit   bool   // and was known here
}

// The states of a call.
const (
	waiting  = iota // the caller waits for it
	left            // the caller left
	answered        // rueidis is done with it
)

// calls are used again, but for those whose callers left: rueidis may still hold them.
var calls = sync.Pool{New: func() any {
	c := &call{answers: make(chan reply, 1), timer: time.NewTimer(time.Hour)}
	c.timer.Stop()
	c.run, c.look = c.execute, c.read
	return c
}}

// call prepares one. It is to be freed.
func (r *Runner) call(ctx context.Context, args []string) *call {
	c := calls.Get().(*call) //nolint:forcetypeassert // the pool holds nothing else
	c.Context, c.runner, c.args, c.within = ctx, r, args, r.timeout
	return c
}

// free is the end of a call to its caller.
func (c *call) free() {
	c.timer.Stop()
	if c.state.Load() != left {
		c.Context, c.runner, c.keys, c.args, c.loads = context.Background(), nil, nil, nil, false
		c.key[0], c.got[0] = "", Answer{}
		calls.Put(c)
	}
}

var never = make(chan struct{})

// Deadline tells of none.
func (*call) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is never.
func (*call) Done() <-chan struct{} { return never }

// Err is the caller's.
func (c *call) Err() error {
	if c.state.Load() == left {
		return context.Canceled
	}
	return c.Context.Err()
}

// mostAbandoned is how many calls may wait whose callers left. They pile up while Redis hangs.
const mostAbandoned = 4096

var errTooMany = fmt.Errorf("%w: %d calls wait for it whose callers left", ErrOutage, mostAbandoned)

// exec has something done, such as the script sent once for each key. It comes back when the caller's context ends or the time is up, whatever rueidis waits for.
func (c *call) exec(do func(), up <-chan time.Time) []Answer {
	if c.runner.abandoned.Load() >= mostAbandoned {
		return c.fail(errTooMany)
	}
	c.state.Store(waiting)
	go do()
	var err error
	select {
	case reply := <-c.answers:
		return c.take(reply)
	case <-c.Context.Done():
		err = c.Context.Err()
	case <-up:
		err = c.expired()
	}
	c.runner.abandoned.Add(1)
	if !c.state.CompareAndSwap(waiting, left) { // it came just now
		c.runner.abandoned.Add(-1)
		return c.take(<-c.answers)
	}
	return c.fail(err)
}

func (c *call) take(r reply) []Answer {
	if r.each != nil {
		return r.each
	}
	c.got[0] = r.one
	return c.got[:]
}

// execute has rueidis do it. Nobody but a caller that waits for the answer uses the call again.
func (c *call) execute() {
	r := c.runner
	var got reply
	if len(c.keys) == 1 {
		got.one.Integers, got.one.Err = r.script.Exec(c, r.client, c.keys, c.args).AsIntSlice()
	} else {
		got.each = c.executeEach()
	}
	c.answer(got)
}

func (c *call) answer(got reply) {
	if c.state.CompareAndSwap(waiting, answered) {
		c.answers <- got
	} else {
		c.runner.abandoned.Add(-1)
	}
}

// read gets the value of the key, from the cache of the client if it is there.
func (c *call) read() {
	client, got := c.runner.client, reply{}
	result := client.DoCache(c, client.B().Get().Key(c.key[0]).Cache(), c.ttl)
	got.one.value, got.one.Err = result.ToString()
	got.one.hit = result.IsCacheHit()
	if rueidis.IsRedisNil(got.one.Err) {
		got.one.Err = nil
	}
	c.answer(got)
}

// executeEach sends the script for all keys in one pipeline. Where the server does not know it, the first sends it in full, and the
// others find it there.
func (c *call) executeEach() []Answer {
	r := c.runner
	hash, err := r.hash(c)
	if err != nil {
		return c.fail(err)
	}
	batch := make(rueidis.Commands, len(c.keys))
	for i, key := range c.keys {
		batch[i] = r.client.B().Evalsha().Sha1(hash).Numkeys(1).Key(key).Arg(c.args...).Build()
	}
	if c.loads {
		batch[0] = r.client.B().Eval().Script(r.source).Numkeys(1).Key(c.keys[0]).Arg(c.args...).Build()
	}
	answers := make([]Answer, len(batch))
	for i, reply := range r.client.DoMulti(c, batch...) {
		answers[i].Integers, answers[i].Err = reply.AsIntSlice()
	}
	return answers
}

// hash is what servers know the script by. In FIPS mode one has to be asked.
func (r *Runner) hash(ctx context.Context) (string, error) {
	if hash, _ := r.sha1.Load().(string); hash != "" {
		return hash, nil
	}
	hash, err := r.client.Do(ctx, r.client.B().ScriptLoad().Script(r.source).Build()).ToString()
	if err == nil {
		r.sha1.Store(hash)
	}
	return hash, err
}
