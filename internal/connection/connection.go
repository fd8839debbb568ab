// Package connection is the door to Redis: the Connection of a program, the interface of the clients
// that send script calls, and its implementation for rueidis. It does not know about limiters, or when
// and in which order calls are sent.
package connection

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/clock"
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

	shared sync.Once
	office any // see Office
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

	// ErrClosed is the cause of failures after Close.
	ErrClosed = errors.New("the Connection is closed")
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
	return &Connection{made: time.Now(), ready: make(chan struct{}), cancel: cancel}
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

// Client returns the client, which must exist.
func (c *Connection) Client() Client { return c.up.Load().Client }

// Cluster returns the client, which must exist, if it is a Cluster, and nil otherwise.
func (c *Connection) Cluster() Cluster { return c.up.Load().cluster }

// IsUp reports whether there is a client.
func (c *Connection) IsUp() bool { return c.up.Load() != nil }

// Tried returns a channel that is closed once the first dial has ended.
func (c *Connection) Tried() <-chan struct{} { return c.tried }

// Elapsed returns the time since the Connection was created.
func (c *Connection) Elapsed() time.Duration { return time.Since(c.made) }

// Office returns what all limiters on the Connection share, which the first call creates with open.
// The Connection only keeps it.
func (c *Connection) Office(open func() any) any {
	c.shared.Do(func() { c.office = open() })
	return c.office
}

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
		if over || clock.Sleep(ctx, redialPause) != nil {
			return
		}
	}
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
	cause := c.NotConnected(nil)
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
		c.err = ErrClosed
	} else if !c.closed {
		up.Close()
	}
	c.closed = true
	c.cancel()
}

// NotConnected returns why calls fail while there is no client: the Connection is closed, the last
// dial failed, or waiting for the first dial ended with the error waited.
func (c *Connection) NotConnected(waited error) error {
	err := c.Err()
	switch {
	case errors.Is(err, ErrClosed):
		return &UnsentError{ErrClosed, ReasonClosed}
	case err != nil:
		waited = dialError{translate(err)}
	case waited == nil:
		return &UnsentError{Cause: errNotYet}
	}
	return &UnsentError{Cause: fmt.Errorf("%w: %w", errNotYet, waited)}
}
