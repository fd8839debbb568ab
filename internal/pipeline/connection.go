package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// Connection is the connection of limiters to Redis: a client, or one that connects later, so that
// a service can start while Redis is down. Create it with Dial, On, OnRueidis or Refused. Any
// number of limiters can share it. It is safe for concurrent use.
type Connection struct {
	refusal error // why no limiter can use it; nil if they can
	dial    func(context.Context) (rueidis.Client, error)
	made    time.Time
	up      atomic.Pointer[connected] // nil until there is a client
	ready   chan struct{}             // closed once there is a client
	tried   <-chan struct{}           // closed once the first dial has ended, and by Close
	ended   <-chan struct{}           // closed by Close; nil if there is no dial
	cancel  context.CancelFunc

	mu     sync.Mutex
	closed bool
	err    error // of the last dial; nil if there was none

	losses  atomic.Int64 // number of calls that got no reply
	callers atomic.Int64 // number of waiting callers
	proofs  proofs
	uses    uses
	queues  [Ranges]queue
	masters masters
	calls   sync.Pool // of unused *call with one request
	batches sync.Pool // of unused *batch
}

// connected holds a client.
type connected struct {
	Client
	tracker Tracker // the same client; nil if it is not a Tracker
	cluster Cluster // the same client; nil if it is not a Cluster
}

// redialPause is the time between two dials of a Connection.
const redialPause = time.Second

var (
	errNone     = errors.New("the Connection is nil; create one with window.Dial, or use NewLocal")
	errZero     = errors.New("the Connection is uninitialized; create it with window.Dial")
	errNil      = errors.New("the client of the Connection is nil; pass one from rueidis.NewClient, or use window.Dial")
	errNoClient = errors.New("dial returned neither a client nor an error; return one from rueidis.NewClient")
	errNotYet   = errors.New("there is no connection yet")
	errClosed   = errors.New("the Connection is closed")
)

// Dial returns a Connection that dials in the background. It dials again a second after each
// failure, until dial returns a client. The context of dial ends with Close. Log failures in dial,
// or get them from Err. Close of the Connection closes the client.
func Dial(dial func(context.Context) (rueidis.Client, error)) *Connection {
	ctx, cancel := context.WithCancel(context.Background())
	first, end := context.WithCancel(ctx)
	c := newConnection(cancel)
	c.dial, c.tried, c.ended = dial, first.Done(), ctx.Done()
	go c.run(ctx, end)
	return c
}

// On returns a Connection with a client. Its Close closes what the client opened.
func On(client Client) *Connection {
	c := newConnection(func() {})
	c.use(client)
	return c
}

// OnRueidis returns a Connection with a rueidis client. Its Close leaves the client open.
func OnRueidis(client rueidis.Client) *Connection {
	if client == nil {
		return Refused(errNil)
	}
	return On(newRueidisClient(client, false))
}

// Refused returns a Connection that no limiter can use, for this reason.
func Refused(reason error) *Connection {
	c := newConnection(func() {})
	c.refusal = reason
	return c
}

func newConnection(cancel context.CancelFunc) *Connection {
	c := &Connection{made: time.Now(), ready: make(chan struct{}), cancel: cancel}
	for i := range c.queues {
		q := &c.queues[i]
		q.conn, q.serve = c, q.run
		c.masters.queues[i].Store(int32(i))
	}
	c.proofs.conn, c.proofs.of, c.uses.of = c, map[[2]string][]*proof{}, map[string]int{}
	return c
}

// Refusal returns why no limiter can use the Connection, and what to do. It is nil if they can.
func (c *Connection) Refusal() error {
	switch {
	case c == nil:
		return errNone
	case c.ready == nil:
		return errZero
	}
	return c.refusal
}

// client returns the client, which must exist.
func (c *Connection) client() Client { return c.up.Load().Client }

// elapsed returns the time since the Connection was created.
func (c *Connection) elapsed() time.Duration { return time.Since(c.made) }

// use sets the client that limiters use from now on.
func (c *Connection) use(client Client) {
	tracker, _ := client.(Tracker)
	cluster, _ := client.(Cluster)
	c.up.Store(&connected{client, tracker, cluster})
	close(c.ready)
}

// Tracks reports whether the client is a Tracker. A client that connects later always is.
func (c *Connection) Tracks() bool {
	up := c.up.Load()
	return up == nil || up.tracker != nil
}

// run dials until there is a client, or ctx ends. It calls tried after each dial.
func (c *Connection) run(ctx context.Context, tried func()) {
	for ctx.Err() == nil {
		client, err := c.dial(ctx)
		if err == nil && client == nil {
			err = errNoClient
		}
		over := c.keep(client, err)
		tried()
		if over || Sleep(ctx, redialPause) != nil {
			return
		}
	}
}

// awaitTry waits until the first dial has ended, for as long as a call waits for Redis. It returns
// what is left of the timeout, or the reason to stop waiting.
func (c *Connection) awaitTry(ctx context.Context, timeout time.Duration) (left time.Duration, err error) {
	p := newPatience(ctx, timeout, slowness*assumedUsual, c.elapsed())
	over, stop := p.timer()
	defer stop()
	began := time.Now()
	select {
	case <-c.tried:
	case <-over:
		return timeout, &expired{after: p.left, early: p.early, unsent: true}
	case <-ctx.Done():
		return timeout, NotSent(ctx.Err())
	}
	if timeout < 0 {
		return timeout, nil
	}
	return max(1, timeout-time.Since(began)), nil
}

// keep stores the result of a dial. It reports whether dialling is over.
func (c *Connection) keep(client rueidis.Client, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		if err == nil {
			client.Close()
		}
		return true
	}
	if c.err = err; err != nil {
		return false
	}
	c.use(newRueidisClient(client, true))
	return true
}

// Err returns the Refusal, if there is one. Otherwise it returns nil once there is a client, and
// before that the error of the last failed dial, if there is one.
func (c *Connection) Err() error {
	if err := c.Refusal(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Wait waits until there is a client or ctx ends, so that a service can give Redis a moment when it
// starts. If there is a client, Wait returns nil, even if ctx has ended. Otherwise the error
// matches that of ctx, and quotes that of the last dial. If there is a Refusal, it returns that at
// once. Close ends the wait, too.
func (c *Connection) Wait(ctx context.Context) error {
	if err := c.Refusal(); err != nil {
		return fmt.Errorf("slidegate: %w", err)
	}
	select {
	case <-c.ready:
	case <-ctx.Done():
	case <-c.ended:
	}
	cause := c.notConnected(nil)
	switch {
	case c.up.Load() != nil: // even if select chose another case
		return nil
	case ctx.Err() == nil:
		return fmt.Errorf("slidegate: %s", advised(cause))
	}
	return fmt.Errorf("slidegate: %w: %s", ctx.Err(), advised(cause))
}

// Close stops dialling, and closes what the client opened. It does not wait for a dial in progress:
// the client of that dial is closed when it arrives. It does nothing if there is a Refusal.
func (c *Connection) Close() {
	if c.Refusal() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if up := c.up.Load(); up == nil {
		c.err = errClosed
	} else if !c.closed {
		up.Close()
	}
	c.closed = true
	c.cancel()
}

// notConnected returns why calls fail while there is no client: the Connection is closed, the last
// dial failed, or a call waited in vain for the first one.
func (c *Connection) notConnected(waited error) error {
	err := c.Err()
	switch {
	case errors.Is(err, errClosed):
		return &UnsentError{errClosed, ReasonClosed}
	case err != nil:
		waited = dialError{translate(err)}
	case waited == nil:
		return &UnsentError{Cause: errNotYet}
	}
	return &UnsentError{Cause: fmt.Errorf("%w: %w", errNotYet, waited)}
}

// A dialError is the error of a dial. It does not match an error of a context, because a call that
// quotes it has its own context.
type dialError struct{ error }

// Is reports whether the error matches target.
func (e dialError) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.error, target)
}

// As finds the first error that matches target.
func (e dialError) As(target any) bool { return errors.As(e.error, target) }

// Sleep sleeps for d, or until ctx ends.
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
