// Package faulttest provides tests of limiters while Redis fails. They run for each client library:
// in package window for rueidis, and in package goredisgate for go-redis.
package faulttest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// Open returns a Connection to the servers that the rueidis options o name. The Connection can use
// any client library. Its client is closed when the test ends.
type Open func(tb testing.TB, o rueidis.ClientOption) *window.Connection

// Rueidis returns a Connection through rueidis. It is an Open.
func Rueidis(tb testing.TB, o rueidis.ClientOption) *window.Connection {
	tb.Helper()
	conn := window.Dial("redis://", func(dialled *rueidis.ClientOption) { *dialled = o })
	tb.Cleanup(conn.Close)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := conn.Wait(ctx); err != nil {
		tb.Fatal(err)
	}
	return conn
}

// Dialer returns the dial function in o for use by a client other than rueidis, with the default
// timeout of both clients. It returns nil if o uses the default.
func Dialer(o rueidis.ClientOption) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if o.DialCtxFn == nil {
		return nil
	}
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		return o.DialCtxFn(ctx, addr, &net.Dialer{Timeout: 5 * time.Second}, nil)
	}
}

func must[T any](v T, err error) T { return redistest.Must(v, err) }

func parsed(limits ...string) (all []window.Limit) {
	for _, text := range limits {
		all = append(all, must(window.ParseLimit(text)))
	}
	return all
}

// numbered returns n events.
func numbered(n int) []string {
	events := make([]string, n)
	for i := range events {
		events[i] = fmt.Sprint("event ", i)
	}
	return events
}

// concurrentCalls is how many concurrent calls are needed to use every connection of a client.
const concurrentCalls = 40

// awaitRefusals waits until the client knows that all connections to a dead server are broken, and
// new connections are refused. Until then, outcomes would be uncertain. Each call uses a new
// limiter, whose circuit breaker is closed.
func awaitRefusals(t *testing.T, conn *window.Connection) {
	t.Helper()
	late := time.Now().Add(time.Minute)
	for refused := int64(0); refused < concurrentCalls; {
		if time.Now().After(late) {
			t.Fatalf("a dead server refuses only %d of %d", refused, concurrentCalls)
		}
		refused = countRefused(t, conn)
	}
}

// countRefused makes concurrent calls, and returns how many were refused.
func countRefused(t *testing.T, conn *window.Connection) int64 {
	t.Helper()
	var refused atomic.Int64
	redistest.AtOnce(concurrentCalls, func(int) {
		l := must(window.New(conn, window.Config{Name: "dead", Limits: parsed("1/1h"), Timeout: time.Minute}))
		if _, err := l.Peek(t.Context(), "e"); err != nil && strings.Contains(err.Error(), "refused") {
			refused.Add(1)
		}
	})
	return refused.Load()
}
