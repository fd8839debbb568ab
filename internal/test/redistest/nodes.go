package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// Nodes is a Redis Cluster in which tests may move slots and break nodes.
type Nodes struct {
	All      []*Server // in no particular order
	Hung     int       // how many nodes were replaced because they hung although no test had paused them
	replicas int       // of each master
}

// options returns the options for a client of the whole cluster. Nodes announce the addresses that
// they use among themselves. The client translates them to the addresses that tests can reach.
func (n *Nodes) options() rueidis.ClientOption {
	o := n.All[0].options()
	o.ForceSingleClient = false
	o.InitAddress = nil
	for _, s := range n.All {
		o.InitAddress = append(o.InitAddress, s.Addr())
	}
	o.DialCtxFn = dialPeer(n.All)
	return o
}

// dialPeer returns a dial function that translates the addresses by which the servers know each
// other.
func dialPeer(servers []*Server) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		for _, s := range servers {
			if s.node.peer() == addr {
				return d.DialContext(ctx, "tcp", s.Addr())
			}
		}
		return d.DialContext(ctx, "tcp", addr)
	}
}

// Options returns the options for a client of this cluster. The function opt can change the
// options; it may be nil.
func (n *Nodes) Options(opt func(*rueidis.ClientOption)) rueidis.ClientOption {
	return changed(n.options(), opt)
}

// NewClient returns a client of this cluster, like [NewClient] for the shared server.
func (n *Nodes) NewClient(tb testing.TB, opt func(*rueidis.ClientOption)) rueidis.Client {
	tb.Helper()
	return newClient(tb, n.options(), opt)
}

// A member is a node as another node sees it.
type member struct {
	id, master string // master is the ID of the node's master, or "-"
	epoch      string // the configuration epoch of the node, or of its master
	serves     []string
	healthy    bool // known, connected, and not suspected of having failed
}

// view returns the cluster as the node sees it, sorted by ID.
func (s *Server) view(ctx context.Context) (view []member, err error) {
	text, err := s.Do(ctx, "CLUSTER", "NODES").ToString()
	for line := range strings.Lines(strings.TrimPrefix(text, "txt:")) { // ID, address, flags, master, two times, epoch, link, slots
		f := strings.Fields(line)
		if len(f) < 8 {
			return nil, fmt.Errorf("%s reports a node %q", s.Addr(), line)
		}
		failed := slices.ContainsFunc(strings.Split(f[2], ","), func(flag string) bool {
			return slices.Contains([]string{"fail", "fail?", "handshake", "noaddr"}, flag)
		})
		view = append(view, member{id: f[0], master: f[3], epoch: f[6], serves: f[8:], healthy: f[7] == "connected" && !failed})
	}
	slices.SortFunc(view, func(a, b member) int { return strings.Compare(a.id, b.id) })
	return view, err
}

// member returns the node with the given ID as s sees it.
func (s *Server) member(ctx context.Context, id string) (member, error) {
	view, err := s.view(ctx)
	if i := slices.IndexFunc(view, func(m member) bool { return m.id == id }); i >= 0 {
		return view[i], err
	}
	return member{}, errors.Join(err, fmt.Errorf("%s does not know the node %s", s.Addr(), id))
}

func (m member) equal(o member) bool {
	return m.id == o.id && m.master == o.master && m.epoch == o.epoch && slices.Equal(m.serves, o.serves)
}

// has reports whether the node serves slot.
func (m member) has(slot int) bool {
	return slices.ContainsFunc(m.serves, func(r string) bool {
		from, to, isRange := strings.Cut(r, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		return err1 == nil && err2 == nil && first <= slot && slot <= last
	})
}

// find returns the first server for which like returns true, in the view of any healthy node.
func (n *Nodes) find(tb testing.TB, what string, like func(member) bool) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for _, s := range n.All {
		if s.state != healthy {
			continue
		}
		view, err := s.view(ctx)
		if i := slices.IndexFunc(view, like); err == nil && i >= 0 {
			if s := n.byID(view[i].id); s != nil {
				return s
			}
		}
	}
	tb.Fatalf("no node knows %s", what)
	return nil
}

// byID returns the server with the given node ID, or nil.
func (n *Nodes) byID(id string) *Server {
	if i := slices.IndexFunc(n.All, func(s *Server) bool { return s.id == id }); i >= 0 {
		return n.All[i]
	}
	return nil
}

// MasterOf returns the server that serves slot.
func (n *Nodes) MasterOf(tb testing.TB, slot int) *Server {
	tb.Helper()
	return n.find(tb, fmt.Sprint("who serves slot ", slot), func(m member) bool { return m.has(slot) })
}

// ReplicaOf returns the replica of master.
func (n *Nodes) ReplicaOf(tb testing.TB, master *Server) *Server {
	tb.Helper()
	return n.find(tb, "a replica of "+master.Addr(), func(m member) bool { return m.healthy && m.master == master.id })
}

// Failover makes the replica of master take over without losing data. It returns the replica once
// all nodes know the new master.
func (n *Nodes) Failover(tb testing.TB, master *Server) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	replica := n.ReplicaOf(tb, master)
	check(tb, replica.awaitVotes(ctx, master))
	check(tb, replica.Do(ctx, "CLUSTER", "FAILOVER").Error())
	n.AwaitFailover(tb, master, replica)
	n.awaitHealthy(tb)
	return replica
}

// AwaitVotes waits until every replica can take over if its master fails. It takes into account the
// elections that AwaitFailover has observed.
func (n *Nodes) AwaitVotes(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	view, err := n.All[0].view(ctx)
	check(tb, err)
	for _, m := range view {
		if master := n.byID(m.master); master != nil {
			check(tb, n.byID(m.id).awaitVotes(ctx, master))
		}
	}
}

// awaitVotes waits until s can be elected. Within two node timeouts, a master votes only once for a
// replica of the same master. A node that has been elected asks for votes again only after four
// node timeouts. Before that, a failover fails. It can even be worse: for two node timeouts, a
// replica that was elected and then replaced takes its old votes for new ones if its master dies.
// The other nodes ignore it, so its slots have no master until an operator intervenes
// (https://github.com/redis/redis/issues/8752).
func (s *Server) awaitVotes(ctx context.Context, master *Server) error {
	config, err := s.Do(ctx, "CONFIG", "GET", "cluster-node-timeout").AsStrMap()
	if err != nil {
		return err
	}
	timeout, err := time.ParseDuration(config["cluster-node-timeout"] + "ms")
	return errors.Join(err, until(ctx, s.Addr()+" can be elected", func() (bool, error) {
		return time.Since(master.deposed) > 2*timeout && time.Since(s.elected) > 4*timeout, nil
	}))
}

// AwaitFailover waits until the replica has taken over from its master.
func (n *Nodes) AwaitFailover(tb testing.TB, master, replica *Server) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	check(tb, until(ctx, replica.Addr()+" takes over", func() (bool, error) {
		info, err := replica.Do(ctx, "INFO", "replication").ToString()
		return strings.Contains(info, "role:master"), err
	}))
	master.deposed, replica.elected = time.Now(), time.Now()
}

// Heal ends all faults that tests have injected into nodes, and waits until the cluster is healthy.
// A killed node comes back empty, as a replica of a master that has none.
func (n *Nodes) Heal(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*startLimit)
	defer cancel()
	for _, s := range n.All { // first, because healthy masters must elect the replicas of dead ones
		switch s.state {
		case paused:
			s.Resume(tb)
		case isolated:
			s.Rejoin(tb)
		case dead, healthy:
		}
	}
	n.replaceBroken(ctx, tb)
	n.awaitHealthy(tb)
}

// awaitHealthy waits until the cluster is healthy. If that takes long, it replaces nodes that hang.
// Redis 8.6.3 loops forever in CLUSTER SHARDS if two nodes consider each other their master, which
// can happen briefly after a failover.
func (n *Nodes) awaitHealthy(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*startLimit)
	defer cancel()
	soon, cancelSoon := context.WithTimeout(ctx, 5*time.Second)
	defer cancelSoon()
	if n.waitHealthy(soon) == nil {
		return
	}
	n.replaceBroken(ctx, tb)
	check(tb, n.waitHealthy(ctx))
}

// replaceBroken replaces nodes that were killed, or that hang although no test has paused them.
func (n *Nodes) replaceBroken(ctx context.Context, tb testing.TB) {
	tb.Helper()
	for _, s := range n.All {
		if s.state == healthy && s.hangs(ctx) {
			tb.Logf("%s hangs, and is replaced", s.Addr())
			n.Hung++
			s.setState(tb, dead, s.node.kill)
		}
	}
	for _, s := range n.All { // in a second loop, because a node that hangs cannot forget the killed nodes
		if s.state == dead {
			check(tb, n.replace(ctx, s))
		}
	}
}

// hangs reports whether the node does not answer within five seconds.
func (s *Server) hangs(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.Do(ctx, "PING").Error() != nil
}

// replace restarts a killed node as a new node. It first makes the other nodes forget the old node,
// once that serves no slots.
func (n *Nodes) replace(ctx context.Context, s *Server) (err error) {
	others := slices.DeleteFunc(slices.Clone(n.All), func(o *Server) bool { return o == s || o.state == dead })
	for _, o := range others {
		if err = o.forget(ctx, s.id); err != nil {
			return err
		}
	}
	if err = s.node.start(); err != nil {
		return err
	}
	s.state, s.deposed, s.elected = healthy, time.Time{}, time.Time{}
	if s.id, err = s.Do(ctx, "CLUSTER", "MYID").ToString(); err != nil {
		return err
	}
	if err = s.meet(ctx, others); err != nil {
		return err
	}
	var master *Server
	err = until(ctx, s.Addr()+" has a master", func() (bool, error) { // the first of others may be new itself, and not know all nodes yet
		master, err = n.withoutReplica(ctx, others)
		return err == nil, err
	})
	if err != nil {
		return err
	}
	return n.replicate(ctx, s, master)
}

// forget makes the node forget the node with the given ID, once that serves no slots.
func (s *Server) forget(ctx context.Context, id string) error {
	return until(ctx, s.Addr()+" forgets "+id, func() (bool, error) {
		view, err := s.view(ctx)
		i := slices.IndexFunc(view, func(m member) bool { return m.id == id })
		if err != nil || i >= 0 && len(view[i].serves) > 0 {
			return false, err
		}
		if i >= 0 {
			err = s.Do(ctx, "CLUSTER", "FORGET", id).Error()
		}
		return err == nil, err
	})
}

// withoutReplica returns a master that has no replica.
func (n *Nodes) withoutReplica(ctx context.Context, nodes []*Server) (*Server, error) {
	view, err := nodes[0].view(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range nodes {
		serves := slices.ContainsFunc(view, func(m member) bool { return m.id == s.id && len(m.serves) > 0 })
		if serves && !slices.ContainsFunc(view, func(m member) bool { return m.master == s.id }) {
			return s, nil
		}
	}
	return nil, fmt.Errorf("every master has a replica: %+v", view)
}

// waitHealthy waits until the cluster is healthy: all nodes have the same view, every slot is
// served, and every master has its replicas, which are connected. Epochs must agree too: otherwise
// a replica that knows an old epoch of its master can win an election and then be ignored.
func (n *Nodes) waitHealthy(ctx context.Context) error {
	return until(ctx, "the cluster is whole", func() (bool, error) {
		first, err := n.All[0].view(ctx)
		for _, s := range n.All {
			if err == nil {
				err = s.checkView(ctx, first, n.replicas)
			}
		}
		return err == nil && len(first) == len(n.All), err
	})
}

// checkView returns an error unless the node's view is all, all nodes in it are healthy, and each
// range of slots has the given number of replicas.
func (s *Server) checkView(ctx context.Context, all []member, replicas int) error {
	view, err := s.view(ctx)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(view, all, member.equal) || slices.ContainsFunc(view, func(m member) bool { return !m.healthy }) {
		return fmt.Errorf("%s sees %+v, another node %+v", s.Addr(), view, all)
	}
	state, err1 := s.Do(ctx, "CLUSTER", "INFO").ToString()
	link, err2 := s.Do(ctx, "INFO", "replication").ToString()
	ranges, err3 := s.Do(ctx, "CLUSTER", "SLOTS").ToArray()
	if err = errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if !strings.Contains(state, "cluster_state:ok") || strings.Contains(link, "master_link_status:down") {
		return fmt.Errorf("%s reports %s %s", s.Addr(), state, link)
	}
	for _, r := range ranges {
		if entry, _ := r.ToArray(); len(entry) != 3+replicas { // first, last, and one entry for each server
			return fmt.Errorf("%s sends clients %v", s.Addr(), ranges)
		}
	}
	return nil
}

// until calls so every 20 ms until so returns true or ctx is done. The error describes the awaited
// state as what.
func until(ctx context.Context, what string, so func() (bool, error)) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		is, err := so()
		if is {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %v", what, ctx.Err(), err) //nolint:errorlint // the last error is only quoted
		}
	}
}

// Move moves slot and its keys to the master to, like redis-cli --cluster reshard, while both
// masters serve requests. It returns once all nodes know the slot's new master and its epoch. If the
// earlier master did not know that epoch and the slot moved back at once, it would choose the same one
// again. Then the two masters can resolve the collision in a way that leaves the slot to neither.
func (n *Nodes) Move(tb testing.TB, slot int, to *Server) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	from, id := n.MasterOf(tb, slot), strconv.Itoa(slot)
	check(tb, to.Do(ctx, "CLUSTER", "SETSLOT", id, "IMPORTING", from.id).Error())
	check(tb, from.Do(ctx, "CLUSTER", "SETSLOT", id, "MIGRATING", to.id).Error())
	check(tb, from.migrate(ctx, id, to))
	check(tb, to.Do(ctx, "CLUSTER", "SETSLOT", id, "NODE", to.id).Error())
	check(tb, from.Do(ctx, "CLUSTER", "SETSLOT", id, "NODE", to.id).Error())
	for _, s := range n.All {
		check(tb, until(ctx, s.Addr()+" knows that the slot moved", func() (bool, error) {
			owner, err1 := to.member(ctx, to.id)
			known, err2 := s.member(ctx, to.id)
			return owner.has(slot) && known.equal(owner), errors.Join(err1, err2)
		}))
	}
}

// migrate moves all keys of slot to the server to.
func (s *Server) migrate(ctx context.Context, slot string, to *Server) error {
	ip, port, _ := net.SplitHostPort(to.node.peer())
	for {
		keys, err := s.Do(ctx, "CLUSTER", "GETKEYSINSLOT", slot, "100").AsStrSlice()
		if err != nil || len(keys) == 0 {
			return err
		}
		if err := s.Do(ctx, append([]string{"MIGRATE", ip, port, "", "0", "5000", "KEYS"}, keys...)...).Error(); err != nil {
			return err
		}
	}
}
