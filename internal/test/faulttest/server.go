package faulttest

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sync/errgroup"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// ScriptFlush keeps flushing the server's scripts while callers make calls for one event that need
// every script. It checks that callers do not notice, and that each call is executed once. At first,
// the server gets the script for Allow before each of the others.
func ScriptFlush(t *testing.T, open Open) {
	server, calls := redistest.Start(t), &redistest.Calls{}
	client := server.Client(t)
	l := must(NewMixed(open(t, server.Options(calls.Count)), window.Config{Name: "flush", Limits: parsed("100000/1h"), Timeout: time.Minute}))
	calls.AwaitSeveral(t, func(events []string) { must("", l.joint(t.Context(), events[0])) })
	flush := func() { must("", client.Do(context.Background(), client.B().ScriptFlush().Build()).Error()) }
	var allowed atomic.Int64
	for range 4 {
		flush()
		for _, ask := range []func(context.Context, string) (window.Decision, error){l.Limiter.Allow, l.Allow} {
			d, err := ask(t.Context(), "hot")
			count(t, &allowed, d, err)
		}
	}
	var over atomic.Bool
	var flushing sync.WaitGroup
	flushing.Go(func() {
		for !over.Load() {
			flush()
		}
	})
	times := redistest.UnlessShort(300, 100)
	redistest.AtOnce(8, func(int) {
		for range times {
			d, err := l.Allow(t.Context(), "hot")
			count(t, &allowed, d, err)
		}
	})
	over.Store(true)
	flushing.Wait()
	used, left := must(l.Inspect(t.Context(), "hot")).Limits[0].Used, l.Left(t.Context(), "hot")
	if allowed.Load() != int64(8*times+8) || used != allowed.Load() || left != 0 {
		t.Fatalf("%d of %d allowed, %d counted, %d left", allowed.Load(), 8*times+8, used, left)
	}
}

// Restart kills the server under load and starts an empty one in its place. It checks that calls in
// between fail with a correct error, that calls succeed again without intervention, and that every
// attempt acknowledged since the restart is counted.
func Restart(t *testing.T, open Open) {
	server := redistest.Start(t)
	l := must(window.New(open(t, server.Options(nil)), window.Config{Name: "restart", Limits: parsed("100000/1h"), Timeout: time.Second}))
	var since, stop atomic.Int64
	var traffic sync.WaitGroup
	var epoch atomic.Int64 // 1 once the server is back
	for range 8 {
		traffic.Go(func() {
			for stop.Load() == 0 {
				after := epoch.Load()
				_, err := l.Allow(context.Background(), "e")
				if err == nil {
					since.Add(after)
				} else if !errors.Is(err, window.ErrUncertain) && !errors.Is(err, window.ErrOutage) {
					t.Error(err)
				}
			}
		})
	}
	server.Restart(t)
	epoch.Store(1)
	for since.Load() < 1000 && !t.Failed() { // the limiter reconnects by itself
		if _, err := l.Peek(t.Context(), "e"); err != nil {
			t.Log(err)
		}
	}
	stop.Store(1)
	traffic.Wait()
	used := must(l.Inspect(t.Context(), "e")).Limits[0].Used
	if used < since.Load() {
		t.Fatalf("%d were acknowledged since the restart, %d are counted", since.Load(), used)
	}
}

// slowRefusal is how long a server takes to refuse a connection in CertainOnSlowRefusal.
const slowRefusal = 27 * time.Millisecond

// CertainOnSlowRefusal refuses each connection after 27 ms, so that nothing is ever sent. A fifth
// try would start just before the Timeout and get no answer in time. So the call must return the
// certain outcome of the fourth try. If a plain connection is refused only after twice the time, the
// machine is too slow for this, and the call is repeated.
func CertainOnSlowRefusal(t *testing.T, open Open) {
	server := redistest.Start(t)
	var dead atomic.Bool
	dial := func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if dead.Load() {
			<-time.After(slowRefusal)
		}
		return d.DialContext(ctx, "tcp", addr)
	}
	conn := open(t, server.Options(func(o *rueidis.ClientOption) { o.DialCtxFn = dial }))
	dead.Store(true)
	server.Kill(t)
	awaitRefusals(t, conn)
	for late := time.Now().Add(time.Minute); ; {
		refusals := redistest.StartControl(faultCallers, func() {
			_, _ = dial(t.Context(), server.Addr(), &net.Dialer{}, nil)
		})
		uncertain := countUncertain(t, conn, 1, Timeout)
		if longest := refusals.Longest(); uncertain == 0 {
			return
		} else if longest < 2*slowRefusal || time.Now().After(late) {
			t.Fatalf("an attempt did not end in ErrOutage, though connections are refused within %v", longest)
		}
	}
}

// CertainOnDeadServer checks that every call to a dead server returns ErrOutage, because nothing
// was counted. Each call uses a new limiter. The Timeout is long enough for many dials: if the last
// dial hung until the Timeout because the machine is busy, the outcome would be uncertain.
func CertainOnDeadServer(t *testing.T, open Open) {
	t.Parallel()
	server := redistest.Start(t)
	conn := open(t, server.Options(nil))
	server.Kill(t)
	awaitRefusals(t, conn)
	if n := countUncertain(t, conn, 128, time.Minute); n > 0 {
		t.Errorf("%d of 128 attempts did not end in ErrOutage", n)
	}
}

// countUncertain makes the given number of attempts, 32 at a time, each with a new limiter. It returns
// how many of them did not return ErrOutage, although nothing was ever sent.
func countUncertain(t *testing.T, conn *window.Connection, attempts int, timeout time.Duration) int64 {
	t.Helper()
	var group errgroup.Group
	var uncertain atomic.Int64
	group.SetLimit(32)
	for range attempts {
		group.Go(func() error {
			l, err := window.New(conn, window.Config{Name: "certain", Limits: parsed("5/1h"), Timeout: timeout})
			if err != nil {
				return err
			}
			if _, err = l.Allow(t.Context(), "e"); !errors.Is(err, window.ErrOutage) {
				uncertain.Add(1)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return uncertain.Load()
}
