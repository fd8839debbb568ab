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

// Nodes are a Redis Cluster that tests may move slots in, and break.
type Nodes struct {
	All      []*Server // in no order
	replicas int       // of each master
}

// options are those of a client of the whole cluster. Nodes announce
// the addresses that they have among themselves; the client dials those that
// reach them from here.
func (n *Nodes) options() rueidis.ClientOption {
	o := n.All[0].options()
	o.ForceSingleClient = false
	o.InitAddress = nil
	for _, s := range n.All {
		o.InitAddress = append(o.InitAddress, s.Addr())
	}
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		for _, s := range n.All {
			if s.node.peer() == addr {
				return d.DialContext(ctx, "tcp", s.Addr())
			}
		}
		return d.DialContext(ctx, "tcp", addr)
	}
	return o
}

// Options returns the options of a client of this cluster, changed by opt, which may be nil.
func (n *Nodes) Options(opt func(*rueidis.ClientOption)) rueidis.ClientOption {
	return changed(n.options(), opt)
}

// NewClient is as [NewClient], for this cluster.
func (n *Nodes) NewClient(tb testing.TB, opt func(*rueidis.ClientOption)) rueidis.Client {
	tb.Helper()
	return newClient(tb, n.options(), opt)
}

// A member is a node as another one sees it.
type member struct {
	id, master string // master of which it is a replica, or "-"
	epoch      string // of its configuration, or of its master's
	serves     []string
	well       bool // known, connected and not suspected
}

// view is what a node knows of its cluster, in the order of IDs.
func (s *Server) view(ctx context.Context) (view []member, err error) {
	told, err := s.Do(ctx, "CLUSTER", "NODES").ToString()
	for line := range strings.Lines(strings.TrimPrefix(told, "txt:")) { // ID, address, flags, master, two times, epoch, link, and what it serves
		f := strings.Fields(line)
		if len(f) < 8 {
			return nil, fmt.Errorf("%s tells of a node %q", s.Addr(), line)
		}
		ill := slices.ContainsFunc(strings.Split(f[2], ","), func(flag string) bool {
			return slices.Contains([]string{"fail", "fail?", "handshake", "noaddr"}, flag)
		})
		view = append(view, member{id: f[0], master: f[3], epoch: f[6], serves: f[8:], well: f[7] == "connected" && !ill})
	}
	slices.SortFunc(view, func(a, b member) int { return strings.Compare(a.id, b.id) })
	return view, err
}

func (m member) equal(o member) bool {
	return m.id == o.id && m.master == o.master && m.epoch == o.epoch && slices.Equal(m.serves, o.serves)
}

// has tells whether the node serves a slot.
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

// find returns the first server that some node which answers sees like that.
func (n *Nodes) find(tb testing.TB, what string, like func(member) bool) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for _, s := range n.All {
		if s.ails != well {
			continue
		}
		view, err := s.view(ctx)
		if i := slices.IndexFunc(view, like); err == nil && i >= 0 {
			if j := slices.IndexFunc(n.All, func(s *Server) bool { return s.id == view[i].id }); j >= 0 {
				return n.All[j]
			}
		}
	}
	tb.Fatalf("no node knows %s", what)
	return nil
}

// MasterOf is the server that serves a slot.
func (n *Nodes) MasterOf(tb testing.TB, slot int) *Server {
	tb.Helper()
	return n.find(tb, fmt.Sprint("who serves slot ", slot), func(m member) bool { return m.has(slot) })
}

// ReplicaOf is the replica of a master.
func (n *Nodes) ReplicaOf(tb testing.TB, master *Server) *Server {
	tb.Helper()
	return n.find(tb, "a replica of "+master.Addr(), func(m member) bool { return m.well && m.master == master.id })
}

// Failover has the replica of a master take over, without a loss, and returns it when all know.
func (n *Nodes) Failover(tb testing.TB, master *Server) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	heir := n.ReplicaOf(tb, master)
	check(tb, heir.awaitVotes(ctx, master))
	check(tb, heir.Do(ctx, "CLUSTER", "FAILOVER").Error())
	n.AwaitFailover(tb, master, heir)
	n.awaitWhole(tb)
	return heir
}

// awaitVotes returns when a replica can be elected. Masters vote for one of the same master once in two node timeouts, and a node that
// was elected asks for votes again only after four; before that, a failover has everybody wait in vain.
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

// AwaitFailover returns when the replica has taken over from its master.
func (n *Nodes) AwaitFailover(tb testing.TB, master, heir *Server) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	check(tb, until(ctx, heir.Addr()+" takes over", func() (bool, error) {
		info, err := heir.Do(ctx, "INFO", "replication").ToString()
		return strings.Contains(info, "role:master"), err
	}))
	master.deposed, heir.elected = time.Now(), time.Now()
}

// Heal ends whatever tests did to nodes, and returns when the cluster is whole. A node that was killed comes back empty,
// as a replica of the master that has none.
func (n *Nodes) Heal(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*startLimit)
	defer cancel()
	for _, s := range n.All {
		switch s.ails {
		case dead:
			check(tb, n.replace(ctx, s))
		case paused:
			s.Resume(tb)
		case isolated:
			s.Rejoin(tb)
		case well:
		}
	}
	n.awaitWhole(tb)
}

// awaitWhole returns when the cluster is whole. If that takes long, it replaces nodes that hang: Redis 8.6.3 loops for ever in CLUSTER
// SHARDS if two nodes take each other for their master, as one that was deposed can for a moment.
func (n *Nodes) awaitWhole(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*startLimit)
	defer cancel()
	soon, cancelSoon := context.WithTimeout(ctx, 5*time.Second)
	defer cancelSoon()
	if n.whole(soon) == nil {
		return
	}
	for _, s := range n.All {
		if s.ails == well && s.hangs(ctx) {
			tb.Logf("%s hangs, and is replaced", s.Addr())
			check(tb, s.node.kill())
			check(tb, n.replace(ctx, s))
		}
	}
	check(tb, n.whole(ctx))
}

// hangs reports whether the node does not answer for some seconds.
func (s *Server) hangs(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.Do(ctx, "PING").Error() != nil
}

// replace starts a killed node as a new one. The others forget the old one, once nothing is left to it.
func (n *Nodes) replace(ctx context.Context, s *Server) (err error) {
	others := slices.DeleteFunc(slices.Clone(n.All), func(o *Server) bool { return o == s })
	for _, o := range others {
		if err = o.forget(ctx, s.id); err != nil {
			return err
		}
	}
	if err = s.node.start(); err != nil {
		return err
	}
	s.ails, s.deposed, s.elected = well, time.Time{}, time.Time{}
	if s.id, err = s.Do(ctx, "CLUSTER", "MYID").ToString(); err != nil {
		return err
	}
	if err = s.meet(ctx, others); err != nil {
		return err
	}
	bereft, err := n.bereft(ctx, others)
	if err != nil {
		return err
	}
	return n.replicate(ctx, s, bereft)
}

// forget has the node forget another, once that serves nothing.
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

// bereft is a master that lacks a replica.
func (n *Nodes) bereft(ctx context.Context, nodes []*Server) (*Server, error) {
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

// whole returns when all nodes see the same cluster, in which every slot is served, and every master has its replicas, which are connected.
// Epochs agree, too: a replica that knows an old one of its master can win an election and then be ignored.
func (n *Nodes) whole(ctx context.Context) error {
	return until(ctx, "the cluster is whole", func() (bool, error) {
		first, err := n.All[0].view(ctx)
		for _, s := range n.All {
			if err == nil {
				err = s.sees(ctx, first, n.replicas)
			}
		}
		return err == nil && len(first) == len(n.All), err
	})
}

// sees is an error unless the node, too, has this view, in which all are well and each range of slots has so many replicas.
func (s *Server) sees(ctx context.Context, all []member, replicas int) error {
	view, err := s.view(ctx)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(view, all, member.equal) || slices.ContainsFunc(view, func(m member) bool { return !m.well }) {
		return fmt.Errorf("%s sees %+v, another node %+v", s.Addr(), view, all)
	}
	state, err1 := s.Do(ctx, "CLUSTER", "INFO").ToString()
	link, err2 := s.Do(ctx, "INFO", "replication").ToString()
	ranges, err3 := s.Do(ctx, "CLUSTER", "SLOTS").ToArray()
	if err = errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if !strings.Contains(state, "cluster_state:ok") || strings.Contains(link, "master_link_status:down") {
		return fmt.Errorf("%s says %s %s", s.Addr(), state, link)
	}
	for _, r := range ranges {
		if entry, _ := r.ToArray(); len(entry) != 3+replicas { // first, last, and a server each
			return fmt.Errorf("%s tells clients of %v", s.Addr(), ranges)
		}
	}
	return nil
}

// until asks every 20 ms until it is so, or the context ends.
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
			return fmt.Errorf("%s: %w: %v", what, ctx.Err(), err) //nolint:errorlint // the last error is only told
		}
	}
}

// Move moves a slot and its keys to another master, as redis-cli --cluster reshard does, while both serve requests, and returns
// when all know.
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
			view, err := s.view(ctx)
			return slices.ContainsFunc(view, func(m member) bool { return m.id == to.id && m.has(slot) }), err
		}))
	}
}

// migrate sends all keys of a slot to another server.
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
