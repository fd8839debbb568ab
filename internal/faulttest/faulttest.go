// Package faulttest holds the tests of what limiters do while Redis fails. They run for each client of
// Redis: in package window for rueidis, and in goredisgate for go-redis.
package faulttest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/window"
)

// Open returns a Connection by a client of some kind, to where these options of rueidis lead. The
// client is closed when the test ends.
type Open func(tb testing.TB, o rueidis.ClientOption) *window.Connection

// Rueidis is the Open of rueidis.
func Rueidis(tb testing.TB, o rueidis.ClientOption) *window.Connection {
	tb.Helper()
	conn := window.Connect(func(context.Context) (rueidis.Client, error) { return rueidis.NewClient(o) })
	tb.Cleanup(conn.Close)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := conn.Wait(ctx); err != nil {
		tb.Fatal(err)
	}
	return conn
}

// Dialer returns how the options connect, for a client that is not rueidis. Nil means: as by default.
func Dialer(o rueidis.ClientOption) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if o.DialCtxFn == nil {
		return nil
	}
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		return o.DialCtxFn(ctx, addr, &net.Dialer{Timeout: time.Second}, nil)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func parsed(limits ...string) (all []window.Limit) {
	for _, text := range limits {
		all = append(all, must(window.ParseLimit(text)))
	}
	return all
}

// many returns events.
func many(n int) []string {
	events := make([]string, n)
	for i := range events {
		events[i] = fmt.Sprint("event ", i)
	}
	return events
}

// askers at once come to each connection of a client.
const askers = 40

// awaitRefusals returns when all connections to a dead server are known to be broken, and new ones are
// refused. What is sent on a broken connection is uncertain. Each asker has a limiter that knows
// nothing yet.
func awaitRefusals(t *testing.T, conn *window.Connection) {
	t.Helper()
	late := time.Now().Add(time.Minute)
	for refused := int64(0); refused < askers; {
		if time.Now().After(late) {
			t.Fatalf("a dead server refuses only %d of %d", refused, askers)
		}
		refused = askAtOnce(t, conn)
	}
}

// askAtOnce returns how many askers were refused.
func askAtOnce(t *testing.T, conn *window.Connection) int64 {
	t.Helper()
	var refused atomic.Int64
	var all sync.WaitGroup
	for range askers {
		all.Go(func() {
			l := must(window.NewOn(conn, window.Config{Name: "dead", Limits: parsed("1/1h"), Timeout: Timeout}))
			if _, err := l.Peek(t.Context(), "e"); err != nil && strings.Contains(err.Error(), "refused") {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	return refused.Load()
}
