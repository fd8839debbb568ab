package redistest

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/rueidis"
)

// Faults injects faults into a client's connections. Pass its method Break to NewClient. The zero
// Faults injects nothing. Several clients can share a Faults.
type Faults struct {
	refuse atomic.Int64 // how many dials fail; below 0 means none
	delay  atomic.Int64 // in ns

	mu    sync.Mutex
	lose  []byte // the reply to the next command that contains these bytes is lost
	conns map[*conn]struct{}
}

// Break makes a client connect through f.
func (f *Faults) Break(o *rueidis.ClientOption) {
	reach := dialer(o.DialCtxFn)
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return f.dial(ctx, reach, addr, d)
	}
}

// LoseReply loses one reply: the reply to the next command that contains part, such as "EVALSHA".
// The server receives and executes the whole command. The reply is dropped and the connection is
// closed, so other pending replies on the same connection are lost too.
func (f *Faults) LoseReply(part string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = []byte(part)
}

// Refuse makes the next n dials fail, as if no server listened.
func (f *Faults) Refuse(n int64) { f.refuse.Store(n) }

// Delay delays everything that the server sends by d.
func (f *Faults) Delay(d time.Duration) { f.delay.Store(int64(d)) }

// Cut closes all open connections, so that the client must dial again.
func (f *Faults) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.Conn.Close()
	}
}

// Dial connects to addr, unless Refuse makes it fail.
func (f *Faults) Dial(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
	return f.dial(ctx, nil, addr, d)
}

func (f *Faults) dial(ctx context.Context, reach dialer, addr string, d *net.Dialer) (net.Conn, error) {
	if f.refuse.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	inner, err := reach.connect(ctx, addr, d, nil)
	if err != nil {
		return nil, err
	}
	return f.wrap(inner), nil
}

// wrap returns inner as a connection into which f injects faults.
func (f *Faults) wrap(inner net.Conn) *conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil {
		f.conns = map[*conn]struct{}{}
	}
	c := &conn{Conn: inner, faults: f, closed: make(chan struct{})}
	f.conns[c] = struct{}{}
	return c
}

// conn is a connection into which faults are injected.
type conn struct {
	net.Conn
	faults *Faults
	losing bool // the next data is lost; guarded by faults.mu
	once   sync.Once
	closed chan struct{}
	end    atomic.Value // time.Time: the read deadline
}

// Write sends b. If the reply to b is to be lost, nothing is read until all of b has been sent.
func (c *conn) Write(b []byte) (int, error) {
	f := c.faults
	f.mu.Lock()
	if f.lose == nil || !bytes.Contains(b, f.lose) {
		f.mu.Unlock()
		return c.Conn.Write(b)
	}
	defer f.mu.Unlock()
	f.lose, c.losing = nil, true
	return c.Conn.Write(b)
}

// Read returns data from the server, delayed or not at all if a fault is set.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.faults.mu.Lock()
	losing := c.losing
	c.faults.mu.Unlock()
	if losing {
		_ = c.Close()
		return 0, io.EOF
	}
	delay := time.Duration(c.faults.delay.Load())
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-c.closed:
		}
		if end, _ := c.end.Load().(time.Time); !end.IsZero() && time.Now().After(end) {
			return 0, os.ErrDeadlineExceeded
		}
	}
	return n, err
}

// SetDeadline also bounds delays: if the deadline passes during a delay, Read fails although the
// server has answered in time.
func (c *conn) SetDeadline(t time.Time) error {
	c.end.Store(t)
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline also bounds delays, like SetDeadline.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.end.Store(t)
	return c.Conn.SetReadDeadline(t)
}

// Close closes the connection, and ends its delays.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.faults.mu.Lock()
		delete(c.faults.conns, c)
		c.faults.mu.Unlock()
	})
	return c.Conn.Close()
}
