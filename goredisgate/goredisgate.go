// Package goredisgate runs the rate limiters of window, ar1 and login on a go-redis client, so that
// a service which has one needs no second client for Redis or Redis Cluster.
//
//	conn, err := goredisgate.Connect(client)
//	...
//	limiter, err := window.NewOn(conn, window.Config{Name: "api", Limits: limits})
//
// ar1.NewOn and login.NewOn take the same Connection.
//
// Every promise of docs/guarantees.md holds as it does on rueidis. Requests made at the same time
// share a pipeline. A request that may have run is never sent again, whatever the client's
// MaxRetries: a lost reply is window.ErrUncertain. Config.Timeout and the deadline of a context end
// the waiting of one caller and nobody else's. The limiter sends its scripts to masters only, also
// where the client reads from replicas, and follows MOVED and ASK. Hooks of the client see what it
// sends.
//
// Config.DenialCache needs a client that tracks keys, so NewOn refuses it here.
//
// # Options of the client
//
// Set ReadTimeout to a second or two, and never to -1. While a server hangs, each connection that
// waits for a reply stays busy for ReadTimeout, and other commands of your program share the pool.
// Callers of a limiter leave after Config.Timeout.
//
// Keep PoolSize at 10 or more. A limiter has at most four pipelines under way for each slot range.
// A single server is one range, and a cluster has 64. If the pool is smaller, requests wait for a
// connection, and callers no longer than Config.Timeout.
//
// Where the options have DialerRetries, set it to 1 if Config.Timeout is below a second. Otherwise
// go-redis may still be dialling a dead server when the caller leaves, and the caller gets
// window.ErrUncertain though nothing was sent. ContextTimeoutEnabled changes nothing for limiters.
// The section "go-redis" of docs/servers.md has more.
package goredisgate

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/window"
)

// Connect returns a Connection to the Redis of a *redis.Client, for one server or under Sentinel, or
// of a *redis.ClusterClient. It waits for nothing, so Redis may be down. Any number of limiters and
// guards can share the Connection, and it shares the client's connection pools.
//
// Add hooks to a *redis.Client before Connect: limiters do not see those that come later. On a
// *redis.ClusterClient, limiters call the hooks of its nodes (OnNewNode), and not its own.
//
// The client is yours to close, after its last use. Close of the Connection leaves it open.
//
// An error says that the client is nil, or of another type. A *redis.Ring is refused: it moves keys to
// other servers when one fails, so their counts would begin anew.
func Connect(client redis.UniversalClient) (*window.Connection, error) {
	switch c := client.(type) {
	case *redis.Client:
		if c != nil {
			return connectSingle(c)
		}
	case *redis.ClusterClient:
		if c != nil {
			return connectCluster(c)
		}
	case *redis.Ring:
		return nil, errors.New("slidegate: goredisgate refuses a *redis.Ring, which moves keys to other servers and so loses counts; use a *redis.ClusterClient")
	}
	return nil, fmt.Errorf("slidegate: goredisgate needs a *redis.Client or a *redis.ClusterClient, not %T; pass the one from redis.NewClient or redis.NewClusterClient", client)
}

func connectSingle(client *redis.Client) (*window.Connection, error) {
	node, err := unrepeating(client)
	if err != nil {
		return nil, err
	}
	return engine.ConnectedTo(&single{loader: loader{client}, node: node}), nil
}

func connectCluster(client *redis.ClusterClient) (*window.Connection, error) {
	return engine.ConnectedTo(newCluster(client)), nil
}
