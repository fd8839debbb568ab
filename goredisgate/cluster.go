package goredisgate

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/connection"
)

// maxRedirects is how many MOVED or ASK replies a script call follows at most. A node that sends
// such a reply has not run the call.
const maxRedirects = 3

// cluster is the connection.Client for a cluster. It sends pipelines to the nodes itself, because a
// redis.ClusterClient follows redirections by its own rules, and could send a script to a replica.
type cluster struct {
	client       *redis.ClusterClient
	readReplicas bool     // connections to the nodes allow reads on replicas
	nodes        sync.Map // *node by address
}

// newCluster returns a Client for a cluster, and starts loading the cluster's slots in the
// background. Otherwise the first callers would wait for the slots, and go-redis might request them
// from a node that hangs.
func newCluster(client *redis.ClusterClient) *cluster {
	client.ReloadState(context.Background())
	options := client.Options()
	return &cluster{client: client, readReplicas: options.ReadOnly && options.ClusterSlots == nil}
}

// target specifies where and how to send script calls.
type target struct {
	*node
	asking bool // the slot is moving to the node, so ASKING precedes each call
}

// A round is script calls that are sent at the same time, by their targets.
type round map[target][]*connection.ScriptCall

// Shares returns the ranges of hash slots, each with its master.
func (c *cluster) Shares(ctx context.Context) ([]connection.Share, error) {
	all, err := c.client.ClusterSlots(ctx).Result() //nolint:staticcheck // Redis 6 has no CLUSTER SHARDS
	var shares []connection.Share
	for _, s := range all {
		if len(s.Nodes) > 0 {
			shares = append(shares, connection.Share{First: s.Start, Last: s.End, Master: s.Nodes[0].ID})
		}
	}
	return shares, err
}

// Close closes the clients that this package created. The client passed to On stays open.
func (c *cluster) Close() {
	for _, n := range c.nodes.Range {
		n.(*node).close()
	}
	c.nodes.Clear()
}

// Send sends script calls, as one pipeline per node. It follows redirections, and sets the outcome
// of each call.
func (c *cluster) Send(ctx context.Context, calls []*connection.ScriptCall) {
	if err := ctx.Err(); err != nil {
		answerAll(calls, &connection.UnsentError{Cause: err})
		return
	}
	all := c.byMaster(ctx, calls)
	for left := maxRedirects; len(all) > 0; left-- {
		c.sendAll(ctx, all)
		if left == 0 {
			return
		}
		all = c.redirected(all)
	}
}

// byMaster groups calls by their master. A call whose master is unknown fails.
func (c *cluster) byMaster(ctx context.Context, calls []*connection.ScriptCall) round {
	all := round{}
	for _, call := range calls {
		master, err := c.master(ctx, call.Keys[0])
		if err != nil {
			call.Answer(nil, unsent(err))
			continue
		}
		to := target{node: master}
		all[to] = append(all[to], call)
	}
	return all
}

// master returns the node that serves the slot of key, as far as go-redis knows.
func (c *cluster) master(ctx context.Context, key string) (*node, error) {
	client, err := c.client.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	addr := client.Options().Addr
	if known, _ := c.nodes.Load(addr); known != nil && known.(*node).client == client {
		return known.(*node), nil
	}
	n := &node{addr: addr, client: client, readReplicas: c.readReplicas}
	if old, _ := c.nodes.Swap(addr, n); old != nil {
		old.(*node).close()
	}
	return n, nil
}

// at returns the node at addr, to which the node from has redirected a call. go-redis does not know
// a node before that node serves a slot. For an unknown node, at creates a client that has the same
// options as the client of from.
func (c *cluster) at(addr string, from *node) *node {
	if known, ok := c.nodes.Load(addr); ok {
		return known.(*node)
	}
	like, all := from.client.Options(), c.client.Options()
	options := *like
	options.Addr, options.MinIdleConns = addr, 0
	options.PushNotificationProcessor = all.PushNotificationProcessor // the processor in a node's options works for that node only
	options.MaintNotificationsConfig = all.MaintNotificationsConfig   // go-redis changes this field in a node's options
	n := &node{addr: addr, client: all.NewClient(&options), own: true, readReplicas: c.readReplicas}
	own := n.client.Options() // the options with defaults instead of zeros
	own.ReadTimeout, own.WriteTimeout = like.ReadTimeout, like.WriteTimeout
	known, found := c.nodes.LoadOrStore(addr, n)
	if found {
		n.close()
	}
	return known.(*node)
}

// sendAll sends the calls to all targets concurrently, and sets the outcome of each call. After a
// failure, it makes go-redis reload the slots.
func (c *cluster) sendAll(ctx context.Context, all round) {
	var others sync.WaitGroup
	started := 0
	for to, calls := range all {
		sendThese := func() {
			if err := to.send(ctx, calls, to.asking); err != nil {
				c.refreshSlots(ctx, to.node, err)
			}
		}
		if started++; started < len(all) {
			others.Go(sendThese)
		} else {
			sendThese()
		}
	}
	others.Wait()
}

// redirected returns the calls that were redirected, grouped by their new targets.
func (c *cluster) redirected(all round) round {
	next := round{}
	for from, calls := range all {
		for _, call := range calls {
			if addr, asking, ok := redirection(call.Err, from.addr); ok {
				to := target{c.at(addr, from.node), asking}
				next[to] = append(next[to], call)
			}
		}
	}
	return next
}

// refreshSlots makes go-redis reload the slots, unless n replied with an error that is unrelated to
// slots. If go-redis has closed the client of n, refreshSlots forgets n. If a connection broke, it
// probes the other connections to n.
func (c *cluster) refreshSlots(ctx context.Context, n *node, err error) {
	if !connection.Replied(err) || redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "READONLY") {
		c.client.ReloadState(ctx)
	}
	switch {
	case errors.Is(err, redis.ErrClosed):
		c.nodes.CompareAndDelete(n.addr, n)
	case isBroken(err):
		n.prober.probe(n.client)
	}
}

// redirection returns the address to which a node redirects a call, if err is MOVED or ASK. If the
// reply names no host, the host is that of from, the node that replied.
func redirection(err error, from string) (addr string, asking, ok bool) {
	if !connection.Replied(err) {
		return "", false, false
	}
	words := strings.Fields(err.Error())
	if len(words) != 3 || words[0] != "MOVED" && words[0] != "ASK" {
		return "", false, false
	}
	colon := strings.LastIndexByte(words[2], ':')
	if colon < 0 {
		return "", false, false
	}
	host, port := strings.Trim(words[2][:colon], "[]"), words[2][colon+1:]
	if host == "" {
		host, _, _ = net.SplitHostPort(from)
	}
	return net.JoinHostPort(host, port), words[0] == "ASK", true
}
