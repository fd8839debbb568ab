package goredisgate

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
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

// node is one node of the cluster.
type node struct {
	addr   string
	client *redis.Client
	own    bool // this package created the client, because go-redis does not know the node

	prober prober
	inUse  sync.RWMutex // held for reading while requests are in flight
}

// send sends commands to the node as one pipeline.
func (n *node) send(ctx context.Context, commands []redis.Cmder) error {
	n.inUse.RLock()
	defer n.inUse.RUnlock()
	return send(ctx, n.client, commands)
}

// close closes the node's client if this package created it, as soon as no request is in flight.
// Requests made after that are not sent.
func (n *node) close() {
	if n.own {
		go func() {
			n.inUse.Lock()
			defer n.inUse.Unlock()
			_ = n.client.Close()
		}()
	}
}

// target specifies where and how to send a script call.
type target struct {
	*node
	asking bool // the slot is moving to the node, so ASKING precedes each call
}

// delivery is a pipeline of script calls for one target.
type delivery struct {
	target
	calls    []*connection.ScriptCall
	commands []*command
	err      error // why some commands may have no reply; nil if no command failed
}

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
	round := c.sort(ctx, calls)
	for left := maxRedirects; len(round) > 0; left-- {
		c.sendAll(ctx, round)
		next := map[target]*delivery{}
		for _, d := range round {
			c.answer(ctx, d, next, left > 0)
		}
		round = slices.Collect(maps.Values(next))
	}
}

// sort groups calls by their master. A call whose master is unknown fails.
func (c *cluster) sort(ctx context.Context, calls []*connection.ScriptCall) []*delivery {
	var all []*delivery
	for _, call := range calls {
		to, err := c.master(ctx, call.Keys[0])
		if err != nil {
			call.Answer(nil, unsent(err))
			continue
		}
		i := slices.IndexFunc(all, func(d *delivery) bool { return d.node == to })
		if i < 0 {
			i = len(all)
			all = append(all, &delivery{target: target{node: to}})
		}
		all[i].calls = append(all[i].calls, call)
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
	n := &node{addr: addr, client: client}
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
	n := &node{addr: addr, client: all.NewClient(&options), own: true}
	own := n.client.Options() // the options with defaults instead of zeros
	own.ReadTimeout, own.WriteTimeout = like.ReadTimeout, like.WriteTimeout
	known, found := c.nodes.LoadOrStore(addr, n)
	if found {
		n.close()
	}
	return known.(*node)
}

// sendAll sends the deliveries concurrently.
func (c *cluster) sendAll(ctx context.Context, all []*delivery) {
	var others sync.WaitGroup
	for _, d := range all[1:] {
		others.Go(func() { c.send(ctx, d) })
	}
	c.send(ctx, all[0])
	others.Wait()
}

// send sends a delivery. On a connection that allows reads on replicas, a master that has become a
// replica would run the scripts. In this case, READWRITE precedes them, which makes a replica reply
// MOVED.
func (c *cluster) send(ctx context.Context, d *delivery) {
	var together []redis.Cmder
	if c.readReplicas {
		together = append(together, redis.NewStatusCmd(ctx, "readwrite"))
	}
	for _, call := range d.calls {
		if d.asking {
			together = append(together, redis.NewStatusCmd(ctx, "asking"))
		}
		cmd := build(ctx, call)
		d.commands = append(d.commands, cmd)
		together = append(together, cmd)
	}
	if c.readReplicas {
		together = append(together, redis.NewStatusCmd(ctx, "readonly"))
	}
	d.err = d.send(ctx, together)
}

// answer sets the outcome of each call in d. If redirect is true, it adds redirected calls to next
// instead. After a failure, it makes go-redis reload the slots.
func (c *cluster) answer(ctx context.Context, d *delivery, next map[target]*delivery, redirect bool) {
	for i, call := range d.calls {
		reply, err := result(d.commands[i], d.err)
		if i == 0 && err != nil {
			c.refreshSlots(ctx, d.node, err)
		}
		addr, asking, redirected := redirection(err, d.addr)
		if !redirected || !redirect {
			call.Answer(reply, err)
			continue
		}
		to := target{c.at(addr, d.node), asking}
		if next[to] == nil {
			next[to] = &delivery{target: to}
		}
		next[to].calls = append(next[to].calls, call)
	}
}

// refreshSlots makes go-redis reload the slots, unless n replied with an error that is unrelated to
// slots. If go-redis has closed the client of n, refreshSlots forgets n. If a connection broke, it
// probes the other connections to n.
func (c *cluster) refreshSlots(ctx context.Context, n *node, err error) {
	var reply *connection.ReplyError
	if !errors.As(err, &reply) || redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "READONLY") {
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
	var reply *connection.ReplyError
	if !errors.As(err, &reply) {
		return "", false, false
	}
	words := strings.Fields(reply.Error())
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
