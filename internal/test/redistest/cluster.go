package redistest

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/rueidis"
)

// masters is the number of masters in a cluster, and slots the number of hash slots.
const (
	masters = 3
	slots   = 16384
)

// plain returns the cluster without replicas, which all tests of the binary share.
var plain = sync.OnceValues(func() (*Nodes, error) { return newNodes(0) })

var plainClient = sync.OnceValues(func() (rueidis.Client, error) {
	n, err := plain()
	if err != nil {
		return nil, err
	}
	c, err := rueidis.NewClient(n.options())
	if err == nil {
		atEnd(c.Close)
	}
	return c, err
})

// Cluster returns a client of a Redis Cluster of three masters without replicas. All tests of the
// binary share it: use different keys, from [Key], and do not close it.
func Cluster(tb testing.TB) rueidis.Client {
	tb.Helper()
	c, err := plainClient()
	check(tb, err)
	return c
}

// ClusterOptions returns the options for a client of the cluster that Cluster uses.
func ClusterOptions(tb testing.TB) rueidis.ClientOption {
	tb.Helper()
	n, err := plain()
	check(tb, err)
	return n.Options(nil)
}

// replicated returns the cluster with replicas, which all tests of the binary share.
var replicated = sync.OnceValues(func() (*Nodes, error) { return newNodes(1) })

// Replicated returns a healthy Redis Cluster of three masters that have one replica each. All tests
// of the binary share it: use different keys, from [Key], and do not break the cluster in parallel
// tests. It skips the test if the server lacks [QuickMoves].
func Replicated(tb testing.TB) *Nodes {
	tb.Helper()
	Needs(tb, QuickMoves)
	n, err := replicated()
	check(tb, err)
	n.Heal(tb)
	return n
}

// nodeArgs makes new replicas get their data immediately, and keeps nodes from considering other
// nodes dead just because the machine is busy.
var nodeArgs = []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "5000", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}

// newNodes starts a cluster with the given number of replicas for each master, and returns once the
// cluster is healthy.
func newNodes(replicas int) (*Nodes, error) {
	h, err := theHost()
	if err == nil {
		h, err = h.cluster()
	}
	if err != nil {
		return nil, err
	}
	n := &Nodes{replicas: replicas}
	if n.All, err = startServers(h, masters*(1+replicas)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return n, n.form(ctx)
}

// startServers starts n nodes concurrently. Main removes them.
func startServers(h host, n int) ([]*Server, error) {
	servers, errs := make([]*Server, n), make([]error, n)
	AtOnce(n, func(i int) {
		servers[i], errs[i] = newServer(h, nodeArgs)
		if errs[i] == nil {
			atEnd(servers[i].remove)
		}
	})
	return servers, errors.Join(errs...)
}

// form assigns the slots to the first three nodes, introduces all nodes to each other, and makes
// the other nodes replicas.
func (n *Nodes) form(ctx context.Context) (err error) {
	for i, s := range n.All { // before any node meets another one, because then it would be too late
		if s.id, err = s.Do(ctx, "CLUSTER", "MYID").ToString(); err == nil {
			err = s.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)).Error()
		}
		if err == nil && i < masters {
			err = s.addSlots(ctx, i*slots/masters, (i+1)*slots/masters)
		}
		if err != nil {
			return err
		}
	}
	for i, s := range n.All {
		if err = s.meet(ctx, n.All[:i]); err != nil {
			return err
		}
	}
	for i, s := range n.All[masters:] {
		if err = n.replicate(ctx, s, n.All[i%masters]); err != nil {
			return err
		}
	}
	return n.waitHealthy(ctx)
}

// addSlots assigns the slots in [first, end) to the node. It lists them, because Redis 6 has no
// CLUSTER ADDSLOTSRANGE.
func (s *Server) addSlots(ctx context.Context, first, end int) error {
	command := []string{"CLUSTER", "ADDSLOTS"}
	for slot := first; slot < end; slot++ {
		command = append(command, strconv.Itoa(slot))
	}
	return s.Do(ctx, command...).Error()
}

// meet introduces the node to others. Otherwise the node would learn of them only by gossip, which
// can take ten seconds.
func (s *Server) meet(ctx context.Context, others []*Server) error {
	for _, o := range others {
		ip, port, _ := net.SplitHostPort(o.node.peer())
		if err := s.Do(ctx, "CLUSTER", "MEET", ip, port).Error(); err != nil {
			return err
		}
	}
	return nil
}

// replicate makes s a replica of master, as soon as s knows master.
func (n *Nodes) replicate(ctx context.Context, s, master *Server) error {
	return until(ctx, s.Addr()+" becomes a replica of "+master.Addr(), func() (bool, error) {
		err := s.Do(ctx, "CLUSTER", "REPLICATE", master.id).Error()
		return err == nil, err
	})
}
