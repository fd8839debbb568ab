package goredisgate_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/goredisgate"
	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis logs each failed dial
	redistest.MainParallel(m)
}

func must[T any](v T, err error) T { return redistest.Must(v, err) }

// open returns a Connection that uses a go-redis client for the servers in the given rueidis
// options.
func open(tb testing.TB, o rueidis.ClientOption) *window.Connection {
	tb.Helper()
	return connect(tb, client(tb, o))
}

func connect(tb testing.TB, client redis.UniversalClient) *window.Connection {
	tb.Helper()
	conn := goredisgate.On(client)
	tb.Cleanup(conn.Close)
	return conn
}

// client returns a go-redis client that has the default options of go-redis, except for those that
// the package comment recommends to set. It waits for replies for a minute, because the machine may
// be busy, unless o sets another time.
func client(tb testing.TB, o rueidis.ClientOption) redis.UniversalClient {
	tb.Helper()
	c := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: o.InitAddress, Username: o.Username, Password: o.Password, IsClusterMode: !o.ForceSingleClient, ReadTimeout: cmp.Or(o.ConnWriteTimeout, time.Minute), DialerRetries: 1, Dialer: faulttest.Dialer(o),
	})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}
