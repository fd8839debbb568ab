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

// Connection is what limiters ask: a client, or one that connects late, so that a service can start
// while Redis is down. It comes from Connect or from package goredisgate. Any number of limiters can
// share it. It is safe for concurrent use.
type Connection struct {
	dial   func(context.Context) (rueidis.Client, error) // nil if the client was there from the start
	up     atomic.Pointer[connected]                     // nil until there is a client
	ready  chan struct{}                                 // closed once there is one
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	err    error // of the last dial
}

// connected is a client.
type connected struct {
	Client
	tracker Tracker // nil if it is none
}

// redialPause is how long a Connection waits until it dials again.
const redialPause = time.Second

var (
	errNoClient = errors.New("dial returned neither a client nor an error; return one from rueidis.NewClient")
	errClosed   = errors.New("the Connection is closed; close it after its last use")
)

// Connect returns a Connection that dials in the background, and again a second after each failure,
// until dial returns a client. The context of dial ends with Close. Log failures in dial, or read
// them by Err.
func Connect(dial func(context.Context) (rueidis.Client, error)) *Connection {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Connection{dial: dial, ready: make(chan struct{}), cancel: cancel}
	if dial != nil { // else NewOn refuses it
		go c.run(ctx)
	}
	return c
}

// ConnectedTo returns a Connection that has a client. Its Close closes the client.
func ConnectedTo(client Client) *Connection {
	c := &Connection{ready: make(chan struct{}), cancel: func() {}}
	c.use(client)
	return c
}

// use makes limiters ask the client from now on.
func (c *Connection) use(client Client) {
	tracker, _ := client.(Tracker)
	c.up.Store(&connected{client, tracker})
	close(c.ready)
}

// tracks reports whether the client is a Tracker. One that connects late always is.
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

// keep takes what dial returned. It reports whether there is nothing left to dial for.
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

// Err returns nil once there is a client, and before that the error of the last dial, if one has
// failed.
func (c *Connection) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Wait waits until there is a client or ctx ends. A service can so give Redis a moment when it
// starts. If there is a client, Wait returns nil, even if ctx has ended. Its error matches that of
// ctx, and names that of the last dial.
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

// Close ends dialling, and closes the client if there is one. It does not wait for a dial that is
// under way, whose client is then closed.
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

// check returns nil if there is a client. Otherwise it is an outage, which begins with the first
// request that meets it, and ends with the first one after it.
func (s *redis) check(ctx context.Context) error {
	if s.conn.up.Load() == nil {
		if s.late.CompareAndSwap(false, true) {
			s.outage(ctx, 0, true)
		}
		return s.notConnected()
	}
	if s.late.Load() && s.late.CompareAndSwap(true, false) {
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
