// Package goredisgate provides distributed rate limiting with go-redis: it runs Slidegate's sliding
// window rate limiters on the go-redis client that a service already has. It supports a single
// Redis server, Redis Sentinel and Redis Cluster.
//
//	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
//	conn := goredisgate.On(client)
//	limits := []window.Limit{window.PerHour(100)}
//	limiter, err := window.New(conn, window.Config{Name: "api", Limits: limits})
//	if err != nil {
//		return err
//	}
//	d, err := limiter.Allow(ctx, "198.51.100.7") // d.Allowed, d.Remaining, d.RetryAfter
//
// The limiters of packages ar1, pace and inflight, and the login guard of package login, can use
// the same Connection.
//
// # What it promises
//
// Every guarantee in docs/guarantees.md holds as it does with rueidis. In particular:
//
//   - Requests made at the same time share a pipeline.
//   - A request that may have run is never sent again, whatever the client's MaxRetries. If the
//     reply is lost, the error is window.ErrUncertain.
//   - Config.Timeout, or the deadline of a context, ends the wait of one caller only.
//   - Scripts go to masters only, even if the client reads from replicas. MOVED and ASK are
//     followed.
//   - The client's hooks see each call that is sent.
//
// # Options of the client
//
// Set ReadTimeout to a second or two, and never to -1. Callers of a limiter stop waiting after
// Config.Timeout. But while a server hangs, each connection that waits for a reply is busy until
// ReadTimeout has passed, and your program's other commands share the pool.
//
// Keep PoolSize at 10 or more. A limiter has at most four pipelines in flight for each master, and
// each further busy limiter on the Connection adds one pipeline, up to 16 in total. If the pool is smaller, requests wait for a
// connection, but callers wait no longer than Config.Timeout. Since go-redis 9.23, pipelines first
// use connections of their own (PipelinePoolSize).
//
// Set DialerRetries to 1. By default go-redis dials a dead server five times, at intervals of 100
// ms. Since 9.23, it dials up to ten times for a pipeline. If Config.Timeout passes first, callers
// get window.ErrUncertain although nothing was sent. ContextTimeoutEnabled makes no difference to
// limiters.
//
// For more, see the section "go-redis" in docs/servers.md.
package goredisgate

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/window"
)

// On returns a Connection that sends through client: a *redis.Client, for one server or with
// Sentinel, or a *redis.ClusterClient. On waits for no reply, so it succeeds even if Redis is down.
// Any number of limiters and guards can share the Connection, which uses the client's connection
// pools.
//
// Limiters call the hooks of a *redis.Client. Add the hooks before the first request. With a
// *redis.ClusterClient, limiters call the hooks of its nodes, but not those of the ClusterClient
// itself: add hooks with OnNewNode, before you call On. A hook must pass on the commands that it
// receives, or wrap them. If it sends other commands in their place, go-redis can repeat those.
//
// Close the client yourself when nothing uses it any more. Closing the Connection leaves the client
// open.
//
// If client is nil or has another type, the limiter's New returns an error. In particular, a
// *redis.Ring is rejected, because it moves keys to other servers when a server fails, so that
// their counts would start over.
func On(client redis.UniversalClient) *window.Connection {
	c, err := clientOf(client)
	if err != nil {
		return (*window.Connection)(connection.Refused(err))
	}
	return (*window.Connection)(connection.On(c))
}

// clientOf returns a connection.Client that uses the given go-redis client.
func clientOf(client redis.UniversalClient) (connection.Client, error) {
	switch c := client.(type) {
	case nil:
	case *redis.Client:
		if c != nil {
			return &single{node{client: c}}, nil
		}
	case *redis.ClusterClient:
		if c != nil {
			return newCluster(c), nil
		}
	case *redis.Ring:
		return nil, errors.New("goredisgate cannot use a *redis.Ring, which moves keys to other servers and so loses counts; use a *redis.ClusterClient")
	default:
		return nil, fmt.Errorf("goredisgate needs a *redis.Client or a *redis.ClusterClient, not %T; pass the one from redis.NewClient or redis.NewClusterClient", client)
	}
	return nil, errors.New("the client passed to goredisgate is nil; pass the one from redis.NewClient or redis.NewClusterClient")
}
