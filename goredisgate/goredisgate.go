// Package goredisgate provides distributed rate limiting with go-redis: it runs the sliding window
// rate limiters of Slidegate on the go-redis client that a service already has. Redis can be a
// single server, Redis Sentinel or Redis Cluster.
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
// The limiters of packages ar1, pace and inflight, and the login guard of package login, use the
// same Connection.
//
// # What it promises
//
// Every promise in docs/guarantees.md holds as it does with rueidis. In particular:
//
//   - Requests made at the same time share a pipeline.
//   - A request that may have run is never sent again, whatever the client's MaxRetries. A lost
//     reply is window.ErrUncertain.
//   - Config.Timeout and the deadline of a context end the wait of one caller only.
//   - Scripts go to masters only, even if the client reads from replicas. MOVED and ASK are
//     followed.
//   - Hooks of the client see each call that is sent.
//
// Config.DenialCache needs a client that tracks keys, so New returns an error if it is set here.
//
// # Options of the client
//
// Set ReadTimeout to a second or two, and never to -1. Callers of a limiter stop waiting after
// Config.Timeout. But while a server hangs, each connection that waits for a reply stays busy for
// ReadTimeout, and other commands of your program share the pool.
//
// Keep PoolSize at 10 or more. A limiter has at most four pipelines in flight for each slot range,
// and each further busy limiter on the Connection adds one, up to 16. A single server is one range,
// and a cluster has 64. If the pool is smaller, requests wait for a connection, though callers wait
// no longer than Config.Timeout. From go-redis 9.23 on, pipelines first use their own connections
// (PipelinePoolSize).
//
// Set DialerRetries to 1. By default go-redis dials a dead server five times, 100 ms apart, and up
// to ten times for a pipeline from 9.23 on. If Config.Timeout ends first, callers get
// window.ErrUncertain although nothing was sent. ContextTimeoutEnabled changes nothing for
// limiters.
//
// The section "go-redis" of docs/servers.md has more.
package goredisgate

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/isnil"
	"github.com/slidegate/slidegate/internal/pipeline"
	"github.com/slidegate/slidegate/window"
)

// On returns a Connection that sends through a *redis.Client, for one server or under Sentinel, or
// through a *redis.ClusterClient. It sends nothing yet, so Redis may be down. Any number of
// limiters and guards can share the Connection, and it shares the client's connection pools.
//
// Limiters call the hooks of a *redis.Client. Add them before the first request. On a
// *redis.ClusterClient, limiters call the hooks of its nodes, and not its own: add them with
// OnNewNode, before On. A hook must pass on the commands that it gets, or wrap them. If it sends
// others instead, go-redis can repeat those.
//
// The client is yours to close, after its last use. Close of the Connection leaves it open.
//
// If the client is nil or of another type, New of the limiter returns an error. It rejects a
// *redis.Ring, which moves keys to other servers when one fails, so that their counts would start
// over.
func On(client redis.UniversalClient) *window.Connection {
	c, err := clientOf(client)
	if err == nil && repeats() {
		err = errRepeats
	}
	if err != nil {
		return (*window.Connection)(pipeline.Refused(err))
	}
	return (*window.Connection)(pipeline.On(c))
}

// clientOf returns the pipeline.Client that uses a go-redis client.
func clientOf(client redis.UniversalClient) (pipeline.Client, error) {
	if isnil.Value(client) {
		return nil, errors.New("the client passed to goredisgate is nil; pass the one from redis.NewClient or redis.NewClusterClient")
	}
	switch c := client.(type) {
	case *redis.Client:
		return &single{loader: loader{c}, client: c}, nil
	case *redis.ClusterClient:
		return newCluster(c), nil
	case *redis.Ring:
		return nil, errors.New("goredisgate cannot use a *redis.Ring, which moves keys to other servers and so loses counts; use a *redis.ClusterClient")
	}
	return nil, fmt.Errorf("goredisgate needs a *redis.Client or a *redis.ClusterClient, not %T; pass the one from redis.NewClient or redis.NewClusterClient", client)
}
