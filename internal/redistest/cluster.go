package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// masters is the size of the cluster, and slots the number of Redis Cluster's hash slots.
const (
	masters = 3
	slots   = 16384
)

// cluster is the one cluster of the test binary: its nodes and a client.
var cluster = sync.OnceValues(func() (rueidis.Client, error) {
	host, err := theHost()
	if err != nil {
		return nil, err
	}
	nodes, err := startNodes(host)
	for _, n := range nodes {
		atEnd(n.remove)
	}
	if err != nil {
		return nil, err
	}
	c, err := form(nodes)
	if err == nil {
		atEnd(c.Close)
	}
	return c, err
})

// Cluster is a client of a Redis Cluster of three masters without replicas. All
// tests of the binary share it: isolate by [Key], do not close it.
func Cluster(tb testing.TB) rueidis.Client {
	c, err := cluster()
	check(tb, err)
	return c
}

// startNodes starts the servers at the same time. It returns those that run, also on an error.
func startNodes(h host) (nodes []*Server, err error) {
	type result struct {
		*Server
		err error
	}
	results := make(chan result)
	for range masters {
		go func() {
			s, err := newServer(h, []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "1500"})
			results <- result{s, err}
		}()
	}
	for range masters {
		r := <-results
		if err = errors.Join(err, r.err); r.Server != nil {
			nodes = append(nodes, r.Server)
		}
	}
	return nodes, err
}

// form makes one cluster of these nodes, and returns a client of it once every
// node has seen that all slots are served.
func form(nodes []*Server) (rueidis.Client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for i, n := range nodes { // all of them before any meets another: then it is too late
		first, last := i*slots/len(nodes), (i+1)*slots/len(nodes)-1
		err := errors.Join(
			n.cluster(ctx, "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)),
			n.cluster(ctx, "SET-CONFIG-EPOCH", strconv.Itoa(i+1)))
		if err != nil {
			return nil, err
		}
	}
	for i, n := range nodes {
		ip, port, _ := net.SplitHostPort(nodes[(i+1)%len(nodes)].node.peer())
		if err := n.cluster(ctx, "MEET", ip, port); err != nil {
			return nil, err
		}
	}
	for _, n := range nodes {
		if err := n.awaitCluster(ctx, len(nodes)); err != nil {
			return nil, err
		}
	}
	return rueidis.NewClient(clusterOptions(nodes))
}

// cluster sends one CLUSTER command to one node.
func (s *Server) cluster(ctx context.Context, args ...string) error {
	_, err := s.askCluster(ctx, args...)
	return err
}

func (s *Server) askCluster(ctx context.Context, args ...string) (string, error) {
	c, err := rueidis.NewClient(s.options())
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.Do(ctx, c.B().Arbitrary("CLUSTER").Args(args...).Build()).ToString()
}

// awaitCluster returns when this node knows n nodes and serves requests.
func (s *Server) awaitCluster(ctx context.Context, n int) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		info, err := s.askCluster(ctx, "INFO")
		if strings.Contains(info, "cluster_state:ok") &&
			strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", n)) {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("no cluster after %v: %w, %s", startLimit, err, info)
		}
	}
}

// clusterOptions are those of a client of the whole cluster. Nodes announce
// the addresses that they have among themselves; the client dials those that
// reach them from here, which in Docker are others.
func clusterOptions(nodes []*Server) rueidis.ClientOption {
	o := nodes[0].options()
	o.ForceSingleClient = false
	o.InitAddress = nil
	reach := map[string]string{}
	for _, n := range nodes {
		o.InitAddress = append(o.InitAddress, n.Addr())
		reach[n.node.peer()] = n.Addr()
	}
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if a, ok := reach[addr]; ok {
			addr = a
		}
		return d.DialContext(ctx, "tcp", addr)
	}
	return o
}
