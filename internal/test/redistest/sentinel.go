package redistest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"
)

// A Pair is a master and its replica, which are not in a cluster.
type Pair struct {
	Master, Replica *Server
	named           atomic.Pointer[Server] // the server to which clients connect
}

// Replica starts a master and a replica for the test.
func Replica(tb testing.TB) *Pair {
	tb.Helper()
	return newPair(tb, clusterHost(tb))
}

// clusterHost returns a host for servers that must be able to reach each other.
func clusterHost(tb testing.TB) host {
	tb.Helper()
	h, err := hostOf(tb).cluster()
	check(tb, err)
	return h
}

func newPair(tb testing.TB, h host) *Pair {
	tb.Helper()
	atOnce := quietly("--repl-diskless-sync-delay", "0")
	p := &Pair{Master: startIn(tb, h, atOnce, nil), Replica: startIn(tb, h, atOnce, nil)}
	p.named.Store(p.Master)
	check(tb, p.Replica.follow(p.Master))
	return p
}

// follow makes the server a replica of master, and waits until it has the master's data.
func (s *Server) follow(master *Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	ip, port, _ := net.SplitHostPort(master.node.peer())
	if err := s.Do(ctx, "REPLICAOF", ip, port).Error(); err != nil {
		return err
	}
	return until(ctx, s.Addr()+" follows "+master.Addr(), func() (bool, error) {
		info, err := s.Do(ctx, "INFO", "replication").ToString()
		return strings.Contains(info, "master_link_status:up"), err
	})
}

// AwaitReplica waits until the replica has received everything that the master has written so far.
// It does not use WAIT, which waits only for writes on its own connection.
func (p *Pair) AwaitReplica(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	written, err := p.Master.offset(ctx)
	check(tb, err)
	check(tb, until(ctx, "the replica has received it", func() (bool, error) {
		received, err := p.Replica.offset(ctx)
		return received >= written, err
	}))
}

// offset returns the server's position in the replication stream.
func (s *Server) offset(ctx context.Context) (int64, error) {
	info, err := s.Do(ctx, "INFO", "replication").ToString()
	if err != nil {
		return 0, err
	}
	_, at, _ := strings.Cut(info, "master_repl_offset:")
	at, _, _ = strings.Cut(at, "\r")
	return strconv.ParseInt(at, 10, 64)
}

// Promote makes the replica the master, without Sentinel, and the old master its replica.
// Connections to the old master stay open, and new connections go to the new master.
func (p *Pair) Promote(tb testing.TB) {
	tb.Helper()
	check(tb, p.Replica.Do(context.Background(), "REPLICAOF", "NO", "ONE").Error())
	p.Master, p.Replica = p.Replica, p.Master
	p.named.Store(p.Master)
	check(tb, p.Replica.follow(p.Master))
}

// Options returns the options for a client that connects to the current master, as if by a host
// name whose address an operator changes.
func (p *Pair) Options() rueidis.ClientOption {
	o := p.Master.options()
	o.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", p.named.Load().Addr())
	}
	return o
}

// Watched is a Pair with three Sentinels, which promote the replica if the master dies.
type Watched struct {
	*Pair
	sentinels []*Server
}

// masterSet is the name by which Sentinels know the master.
const masterSet = "watched"

// watch is the format of a Sentinel's configuration.
const watch = `sentinel monitor ` + masterSet + ` %s %s 2
sentinel down-after-milliseconds ` + masterSet + ` 1000
sentinel failover-timeout ` + masterSet + ` 5000
`

// Sentinel starts a Pair and its Sentinels for the test, and waits until each Sentinel knows all
// others.
func Sentinel(tb testing.TB) *Watched {
	tb.Helper()
	host := clusterHost(tb)
	w := &Watched{Pair: newPair(tb, host)}
	ip, port, _ := net.SplitHostPort(w.Master.node.peer())
	for range 3 {
		w.sentinels = append(w.sentinels, startIn(tb, host, launch{
			args: []string{"--sentinel"}, files: map[string]string{"sentinel.conf": fmt.Sprintf(watch, ip, port)},
			config: "sentinel.conf", ready: "+monitor",
		}, nil))
	}
	check(tb, w.waitConnected())
	return w
}

// waitConnected waits until each Sentinel knows the replica and the two other Sentinels.
func (w *Watched) waitConnected() error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return until(ctx, "the Sentinels know each other", func() (bool, error) {
		for _, s := range w.sentinels {
			state, err := s.Do(ctx, "SENTINEL", "MASTER", masterSet).AsStrMap()
			if err != nil || state["num-slaves"] != "1" || state["num-other-sentinels"] != "2" || state["flags"] != "master" {
				return false, fmt.Errorf("%v: %w", state, err)
			}
		}
		return true, nil
	})
}

// Options returns the options for a client that finds the master through the Sentinels.
func (w *Watched) Options() rueidis.ClientOption {
	o := w.Master.options()
	o.ForceSingleClient, o.Sentinel.MasterSet, o.InitAddress = false, masterSet, nil
	for _, s := range w.sentinels {
		o.InitAddress = append(o.InitAddress, s.Addr())
	}
	o.DialCtxFn = dialPeer(append([]*Server{w.Master, w.Replica}, w.sentinels...))
	return o
}
