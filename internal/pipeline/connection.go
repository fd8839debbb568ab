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

// Connection connects limiters to Redis. It has a client, or dials one in the background, so that a
// service can start while Redis is down. Create it with Dial, On, OnRueidis or Refused. Any number
// of limiters can share a Connection. It is safe for concurrent use.
type Connection struct {
	refusal error // why limiters cannot use it; nil if they can
	dial    func(context.Context) (rueidis.Client, error)
	made    time.Time
	up      atomic.Pointer[connected] // nil until there is a client
	ready   chan struct{}             // closed once there is a client
	tried   <-chan struct{}           // closed once the first dial has ended, and by Close
	ended   <-chan struct{}           // closed by Close; nil if there is no dial
	cancel  context.CancelFunc

	mu     sync.Mutex
	closed bool
	err    error // of the last dial; nil if that succeeded or there was none

	losses  atomic.Int64 // number of script calls that got no reply
	proofs  proofs
	uses    uses
	queues  [Ranges]queue
	masters masters
	calls   sync.Pool // of unused *call
	batches sync.Pool // of unused *batch
}

// connected holds a client.
type connected struct {
	Client
	cluster Cluster // the same client; nil if it is not a Cluster
}

// redialPause is the time between a failed dial and the next dial.
const redialPause = time.Second

var (
	errNone     = errors.New("the Connection is nil; create one with window.Dial, or use NewLocal")
	errZero     = errors.New("the Connection is uninitialized; create it with window.Dial")
	errNil      = errors.New("the client of the Connection is nil; pass one from rueidis.NewClient, or use window.Dial")
	errNoClient = errors.New("dial returned neither a client nor an error; return one from rueidis.NewClient")
	errNotYet   = errors.New("there is no connection yet")
	errClosed   = errors.New("the Connection is closed")
)

// Dial returns a Connection that calls dial in the background. After each failure it calls dial
// again a second later, until dial returns a client. Close cancels the context that is passed to
// dial, and closes the client. To learn of failures, log them in dial, or call Err.
func Dial(dial func(context.Context) (rueidis.Client, error)) *Connection {
	ctx, cancel := context.WithCancel(context.Background())
	first, end := context.WithCancel(ctx)
	c := newConnection(cancel)
	c.dial, c.tried, c.ended = dial, first.Done(), ctx.Done()
	go c.run(ctx, end)
	return c
}

// On returns a Connection that uses client. Its Close calls the client's Close.
func On(client Client) *Connection {
	c := newConnection(func() {})
	c.use(client)
	return c
}

// OnRueidis returns a Connection that uses a rueidis client. Its Close leaves the client open.
func OnRueidis(client rueidis.Client) *Connection {
	if client == nil {
		return Refused(errNil)
	}
	return On(newRueidisClient(client, false))
}

// Refused returns a Connection that no limiter can use, for the given reason.
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

// Refusal returns nil if limiters can use the Connection. Otherwise it returns an error that states
// the reason and the remedy.
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

// use sets the client, so that limiters can use the Connection.
func (c *Connection) use(client Client) {
	cluster, _ := client.(Cluster)
	c.up.Store(&connected{client, cluster})
	close(c.ready)
}

// run calls dial until there is a client, or ctx is done. It calls tried after each dial.
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

// awaitTry waits until the first dial has ended, but not after the dial has lasted for the timeout.
// It returns what is left of the timeout, or an error if it stopped waiting.
func (c *Connection) awaitTry(ctx context.Context, timeout time.Duration) (left time.Duration, err error) {
	var over <-chan time.Time
	if timeout >= 0 {
		timer := time.NewTimer(timeout - c.elapsed())
		defer timer.Stop()
		over = timer.C
	}
	began := time.Now()
	select {
	case <-c.tried:
	case <-over:
		return timeout, &expired{after: timeout, unsent: true}
	case <-ctx.Done():
		return timeout, NotSent(ctx.Err())
	}
	if timeout < 0 {
		return timeout, nil
	}
	return max(1, timeout-time.Since(began)), nil
}

// keep stores the result of a dial. It reports whether no further dial is needed.
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

// Err returns the Refusal if there is one. Otherwise it returns the error of the last dial, or nil
// if there is a client or no dial has failed yet.
func (c *Connection) Err() error {
	if err := c.Refusal(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Wait waits until there is a client or ctx is done, so that a service can give Redis some time
// when it starts. If there is a client, Wait returns nil, even if ctx is done. Otherwise the
// returned error wraps the error of ctx, and quotes the error of the last dial. If there is a
// Refusal, Wait returns it immediately. Close ends the wait too.
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

// Close stops dialing, and closes the client. It does not wait for a dial in progress: if that dial
// returns a client, the client is closed then. If there is a Refusal, Close does nothing.
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
// dial failed, or waiting for the first dial ended with the error waited.
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

// A dialError is the error of a failed dial. It does not match the errors of package context,
// because a call that quotes it has a context of its own.
type dialError struct{ error }

// Is reports whether the error matches target.
func (e dialError) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.error, target)
}

// As finds the first error that matches target.
func (e dialError) As(target any) bool { return errors.As(e.error, target) }

// Sleep sleeps for d, or until ctx is done, in which case it returns the error of ctx.
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
