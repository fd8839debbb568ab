package engine

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
// a service can start while Redis is down. Make it with Connect, or with package goredisgate. Any
// number of limiters can share it. It is safe for concurrent use.
type Connection struct {
	dial   func(context.Context) (rueidis.Client, error) // nil if the client was there from the start
	up     atomic.Pointer[connected]                     // nil until there is a client
	ready  chan struct{}                                 // closed once there is one
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	err    error // of the last dial; nil if there was none
}

// connected holds a client.
type connected struct {
	Client
	tracker Tracker // the same client; nil if it is no Tracker
}

// redialPause is the time between two dials of a Connection.
const redialPause = time.Second

var (
	errNoClient = errors.New("dial returned neither a client nor an error; return one from rueidis.NewClient")
	errClosed   = errors.New("the Connection is closed; close it after its last use")
)

// Connect returns a Connection that dials in the background. It dials again a second after each
// failure, until dial returns a client. The context of dial ends with Close. Log failures in dial,
// or read them by Err.
func Connect(dial func(context.Context) (rueidis.Client, error)) *Connection {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Connection{dial: dial, ready: make(chan struct{}), cancel: cancel}
	if dial != nil { // otherwise NewOn refuses it
		go c.run(ctx)
	}
	return c
}

// ConnectedTo returns a Connection with a client. Its Close closes the client.
func ConnectedTo(client Client) *Connection {
	c := &Connection{ready: make(chan struct{}), cancel: func() {}}
	c.use(client)
	return c
}

// use sets the client that limiters ask from now on.
func (c *Connection) use(client Client) {
	tracker, _ := client.(Tracker)
	c.up.Store(&connected{client, tracker})
	close(c.ready)
}

// tracks reports whether the client is a Tracker. A client that connects later always is.
func (c *Connection) tracks() bool {
	up := c.up.Load()
	return up == nil || up.tracker != nil
}

// run dials until there is a client, or ctx ends.
func (c *Connection) run(ctx context.Context) {
	for ctx.Err() == nil {
		client, err := c.dial(ctx)
		if err == nil && client == nil {
			err = errNoClient
		}
		if c.keep(client, err) || sleep(ctx, redialPause) != nil {
			return
		}
	}
}

// keep stores the result of a dial. It reports whether dialling is over.
func (c *Connection) keep(client rueidis.Client, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed && err == nil:
		client.Close()
		return true
	case err != nil:
		c.err = err
		return c.closed
	}
	c.err = nil
	c.use(newRueidisClient(client))
	return true
}

// Err returns nil once there is a client. Before that, it returns the error of the last failed
// dial, if there is one.
func (c *Connection) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Wait waits until there is a client or ctx ends, so that a service can give Redis a moment when it
// starts. If there is a client, Wait returns nil, even if ctx has ended. Its error matches that of
// ctx, and quotes that of the last dial.
func (c *Connection) Wait(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-ctx.Done():
		if c.up.Load() != nil { // select chose by chance
			return nil
		}
		return fmt.Errorf("slidegate: %w: no connection to Redis yet: %v", ctx.Err(), c.Err()) //nolint:errorlint // it must match ctx alone
	}
}

// Close stops dialling, and closes the client if there is one. It does not wait for a dial in
// progress: the client of that dial is closed when it comes.
func (c *Connection) Close() {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if up := c.up.Load(); up != nil && !c.closed {
		up.Close()
	}
	if c.closed = true; c.up.Load() == nil {
		c.err = errClosed
	}
}

// check returns nil if there is a client. Otherwise there is an outage. It begins with the first
// request without a client, and ends with the first one after the client connected.
func (s *redis) check(ctx context.Context) error {
	if s.conn.up.Load() == nil {
		if s.disconnected.CompareAndSwap(false, true) {
			s.outage(ctx, 0, true)
		}
		return s.notConnected()
	}
	if s.disconnected.Load() && s.disconnected.CompareAndSwap(true, false) {
		s.outage(ctx, 0, false)
	}
	return nil
}

func (s *redis) notConnected() error {
	if err := s.conn.Err(); err != nil {
		return fmt.Errorf("%w: no connection yet: %w", ErrOutage, err)
	}
	return fmt.Errorf("%w: no connection yet", ErrOutage)
}
