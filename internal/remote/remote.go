// Package remote runs the scripts of limiters on Redis: within the time that a caller has, never twice when a reply is lost, and not
// at all on a part of a cluster that is in trouble.
package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
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
	script  *rueidis.Lua
	timeout time.Duration // of one call; less than 0: none
	tell    func(part int, began bool)

	made      time.Time
	cluster   bool
	expired   error        // of a call when its time is up
	abandoned atomic.Int32 // calls that have not come back from rueidis, though their callers left
	turning   sync.Mutex
	parts     [parts]part
}

// New returns a Runner. It tells of the begin and end of outages of a part, in turn for each.
func New(client rueidis.Client, script *rueidis.Lua, timeout time.Duration, tell func(part int, began bool)) *Runner {
	r := &Runner{client: client, script: script, timeout: timeout, tell: tell, made: time.Now(), cluster: client.Mode() == rueidis.ClientModeCluster}
	r.expired = fmt.Errorf("nothing came within %v", timeout)
	return r
}

// Run runs the script on one key, unless the part of the key is left alone. The first argument is the verb, as the scripts have it.
func (r *Runner) Run(ctx context.Context, key string, args []string) ([]int64, error) {
	part, began := r.partOf(key), time.Since(r.made)
	may, probes := r.parts[part].enter(began)
	if !may {
		why, _ := r.parts[part].why.Load().(error)
		return nil, why
	}
	c := r.call(ctx, key, args)
	reply, err := c.repeat(part, probes)
	c.free()
	r.learn(ctx, part, began, err)
	if err != nil {
		return nil, Explain(err, key, args[0])
	}
	return reply, nil
}

// repeat sends the script, and again only what certainly did not run: for at most patience, while there is time, and not once
// others have found that the part is to be left alone.
func (c *call) repeat(part int, probes bool) ([]int64, error) {
	end, up := c.end()
	for begin, pause := time.Now(), firstPause; ; pause = min(2*pause, longestPause) {
		reply, err := c.exec(up)
		if err == nil || !notRun(err) || time.Since(begin)+pause > patience || time.Until(end) < pause {
			return reply, err
		}
		if c.runner.parts[part].until.Load() != 0 && !probes || Sleep(c.Context, pause) != nil {
			return nil, err
		}
	}
}

// end is when there is no more time for a call, and what tells of it: by the timeout, if the context does not end before.
func (c *call) end() (end time.Time, up <-chan time.Time) {
	end, dated := c.Context.Deadline()
	timeout := c.runner.timeout
	if timeout < 0 && !dated {
		return time.Now().Add(time.Hour), nil
	}
	if timeout < 0 || dated && time.Until(end) <= timeout {
		return end, nil
	}
	c.timer.Reset(timeout)
	return time.Now().Add(timeout), c.timer.C
}

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
		return reply.IsTryAgain() || reply.IsClusterDown() || reply.IsLoading() || strings.HasPrefix(reply.Error(), "MASTERDOWN")
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
