package remote

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A call is one that rueidis makes, in a goroutine of its own, since rueidis waits for connections and for a place in its queue
// whatever the context. It is also the context that rueidis gets: one that ends in error for a caller that left, so that
// nothing more is sent for it, but never in time. Else the end of one call would end the connecting that others wait for,
// and a deadline would have rueidis close the connection that others use.
type call struct {
	context.Context // the caller's
	runner          *Runner
	key             [1]string
	args            []string
	state           atomic.Int32
	answers         chan answer
	timer           *time.Timer // of the runner's timeout
	run             func()      // is execute
}

type answer struct {
	integers []int64
	err      error
}

// The states of a call.
const (
	waiting  = iota // the caller waits for it
	left            // the caller left
	answered        // rueidis is done with it
)

// calls are used again, but for those whose callers left: rueidis may still hold them.
var calls = sync.Pool{New: func() any {
	c := &call{answers: make(chan answer, 1), timer: time.NewTimer(time.Hour)}
	c.timer.Stop()
	c.run = c.execute
	return c
}}

// call prepares one. It is to be freed.
func (r *Runner) call(ctx context.Context, key string, args []string) *call {
	c := calls.Get().(*call) //nolint:forcetypeassert // the pool holds nothing else
	c.Context, c.runner, c.key[0], c.args = ctx, r, key, args
	return c
}

// free is the end of a call to its caller.
func (c *call) free() {
	c.timer.Stop()
	if c.state.Load() != left {
		c.Context, c.runner, c.key[0], c.args = context.Background(), nil, "", nil
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

// exec sends the script once. It comes back when the caller's context ends or the time is up, whatever rueidis waits for.
func (c *call) exec(up <-chan time.Time) ([]int64, error) {
	if c.runner.abandoned.Load() >= mostAbandoned {
		return nil, errTooMany
	}
	c.state.Store(waiting)
	go c.run()
	var err error
	select {
	case a := <-c.answers:
		return a.integers, a.err
	case <-c.Context.Done():
		err = c.Context.Err()
	case <-up:
		err = c.runner.expired
	}
	c.runner.abandoned.Add(1)
	if !c.state.CompareAndSwap(waiting, left) { // it came just now
		c.runner.abandoned.Add(-1)
		a := <-c.answers
		return a.integers, a.err
	}
	return nil, err
}

// execute has rueidis do it. Nobody but a caller that waits for the answer uses the call again.
func (c *call) execute() {
	r := c.runner
	integers, err := r.script.Exec(c, r.client, c.key[:], c.args).AsIntSlice()
	if c.state.CompareAndSwap(waiting, answered) {
		c.answers <- answer{integers, err}
	} else {
		r.abandoned.Add(-1)
	}
}
