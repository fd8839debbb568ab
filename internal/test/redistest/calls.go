package redistest

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// Calls counts the script calls that a client sends. Pass its method Count to NewClient. Several
// clients can share a Calls.
type Calls struct {
	Scripts atomic.Int64 // script calls for events
	Events  atomic.Int64 // events in these script calls
	Several atomic.Int64 // script calls for several events
	Somes   atomic.Int64 // those of them with the verb some
	Marks   atomic.Int64 // script calls that mark the keys of a proof: see lua/probe.lua

	dial dialer
}

// dialer is the function with which a client connects, as in rueidis.ClientOption. nil means the
// net.Dialer's own.
type dialer func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)

func (f dialer) connect(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	if f == nil {
		return d.DialContext(ctx, "tcp", addr)
	}
	return f(ctx, addr, d, config)
}

// Count makes a client connect through c.
func (c *Calls) Count(o *rueidis.ClientOption) {
	c.dial = o.DialCtxFn
	o.DialCtxFn = c.connect
}

func (c *Calls) connect(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	inner, err := c.dial.connect(ctx, addr, d, config)
	if err != nil {
		return nil, err
	}
	return &counted{Conn: inner, calls: c}, nil
}

func (c *Calls) add(keys []string, verb string) {
	switch {
	case len(keys) == 0, verb == "find": // find looks for the mark on one of those keys
	case verb == "mark":
		c.Marks.Add(1)
	default:
		c.Scripts.Add(1)
		c.Events.Add(int64(len(keys)))
		if len(keys) > 1 {
			c.Several.Add(1)
			if verb == "some" {
				c.Somes.Add(1)
			}
		}
	}
}

// counted is a connection that counts commands before it sends them.
type counted struct {
	net.Conn
	calls *Calls
	begun []byte // the start of a command whose end has not been written yet
}

// Write counts the commands that end in b, and sends b.
func (c *counted) Write(b []byte) (int, error) {
	c.begun = append(c.begun, b...)
	for {
		raw, args, err := ReadCommand(bytes.NewBuffer(c.begun))
		if err != nil {
			return c.Conn.Write(b)
		}
		c.calls.add(scriptKeys(args))
		c.begun = c.begun[len(raw):]
	}
}

// AwaitProof waits until the client starts the next proof that Redis is a single server. The first
// proof starts immediately, and it is renewed every ten seconds. The function ask must make an
// attempt for each of the given events, all at once.
func (c *Calls) AwaitProof(tb testing.TB, ask func(events []string)) {
	tb.Helper()
	before := c.Marks.Load()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	c.await(tb, "no proof", ask, func() bool {
		<-again.C
		return c.Marks.Load() > before
	})
}

// AwaitSeveral waits until the client sends script calls for several events, which it does once it
// has proved that Redis is a single server. For ask, see AwaitProof.
func (c *Calls) AwaitSeveral(tb testing.TB, ask func(events []string)) {
	tb.Helper()
	before := c.Several.Load()
	c.await(tb, "no script call for several events", ask, func() bool { return c.Several.Load() > before })
}

// AwaitSingles waits until three consecutive calls of ask have caused no script call for several
// events. For ask, see AwaitProof.
func (c *Calls) AwaitSingles(tb testing.TB, ask func(events []string)) {
	tb.Helper()
	before, rounds := c.Several.Load(), 0
	c.await(tb, "still script calls for several events", ask, func() bool {
		if rounds++; c.Several.Load() > before {
			before, rounds = c.Several.Load(), 0
		}
		return rounds == 3
	})
}

// await calls ask with new events until over returns true.
func (c *Calls) await(tb testing.TB, what string, ask func(events []string), over func() bool) {
	tb.Helper()
	late := time.Now().Add(time.Minute)
	for round := 0; ; round++ {
		ask(newEvents(round))
		if over() {
			return
		}
		if time.Now().After(late) {
			tb.Fatalf("redistest: %s, in %d rounds, after %d proofs", what, round, c.Marks.Load())
		}
	}
}

// newEvents returns 64 events that no other round has.
func newEvents(round int) (events []string) {
	for i := range 64 {
		events = append(events, "round-"+strconv.Itoa(round)+"."+strconv.Itoa(i))
	}
	return events
}
