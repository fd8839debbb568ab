package goredisgate

import (
	"context"
	"errors"
	"net"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/connection"
)

// node is a server: one node of a cluster, or the server of a single.
type node struct {
	client *redis.Client
	prober prober

	// The following fields are zero outside a cluster.

	addr         string
	own          bool         // this package created the client, because go-redis does not know the node
	readReplicas bool         // connections allow reads on replicas
	inUse        sync.RWMutex // held for reading while requests are in flight
}

// send sends script calls as one pipeline, sets the outcome of each, and returns the error of the
// first. If asking is true, ASKING precedes each call. On a connection that allows reads on replicas,
// a master that has become a replica would run the scripts. In this case, READWRITE precedes them,
// which makes a replica reply MOVED.
func (n *node) send(ctx context.Context, calls []*connection.ScriptCall, asking bool) error {
	n.inUse.RLock()
	defer n.inUse.RUnlock()
	commands := make([]*command, len(calls))
	together := make([]redis.Cmder, 0, len(calls))
	if n.readReplicas {
		together = append(together, redis.NewStatusCmd(ctx, "readwrite"))
	}
	for i, call := range calls {
		if asking {
			together = append(together, redis.NewStatusCmd(ctx, "asking"))
		}
		commands[i] = build(ctx, call)
		together = append(together, commands[i])
	}
	if n.readReplicas {
		together = append(together, redis.NewStatusCmd(ctx, "readonly"))
	}
	failure := send(ctx, n.client, together)
	for i, call := range calls {
		call.Answer(result(commands[i], failure))
	}
	return calls[0].Err
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

// isBroken reports whether err means that a connection broke.
func isBroken(err error) bool {
	var timeout net.Error
	return err != nil && !connection.Replied(err) && !errors.As(err, new(*connection.UnsentError)) &&
		(!errors.As(err, &timeout) || !timeout.Timeout())
}

// prober makes go-redis find the node's other broken connections after one connection broke.
// Otherwise each of them could fail a request, because go-redis does not check a TLS connection
// before it sends on it. The requests that fail before the probe is done count as one failure,
// because all of them started before the first of them ended.
type prober struct {
	mu   sync.Mutex
	done chan struct{} // closed when the current probe ends; nil if there is none
}

const (
	probeTimeout = 100 * time.Millisecond // the longest wait for the replies of a node, which may hang
	reprobeDelay = 5 * time.Millisecond   // time for busy connections to return to the pool
)

// probe waits until the current probe ends. If no probe is running, it starts one.
func (p *prober) probe(client *redis.Client) {
	p.mu.Lock()
	if p.done == nil {
		p.done = make(chan struct{})
		go p.run(client)
	}
	done := p.done
	p.mu.Unlock()
	<-done
}

func (p *prober) run(client *redis.Client) {
	pingIdle(client)
	<-time.After(reprobeDelay)
	pingIdle(client)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.done)
	p.done = nil
}

// pingIdle sends a PING on each idle connection, and waits at most probeTimeout for the replies.
func pingIdle(client *redis.Client) {
	stats := client.PoolStats()
	alone, together := int(stats.IdleConns), idlePipelines(stats)
	probed := make(chan struct{}, alone+together)
	for i := range alone + together {
		go func() {
			ping(client, i < alone)
			probed <- struct{}{}
		}()
	}
	late := time.After(probeTimeout)
	for range alone + together {
		select {
		case <-probed:
		case <-late:
			return
		}
	}
}

// ping sends a PING once: as a single command if alone is true, and otherwise as a pipeline. If
// go-redis repeated it, it would try one broken connection after another, and wait in between.
func ping(client *redis.Client, alone bool) {
	ctx := context.Background()
	cmd := &command{Cmder: redis.NewStatusCmd(ctx, "ping")}
	if alone {
		_ = client.Process(ctx, cmd)
	} else {
		_, _ = client.Pipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Process(ctx, cmd) })
	}
}

// idlePipelines returns how many connections in the pipeline pool are idle. Only newer versions of
// go-redis have such a pool. The oldest supported version lacks the field, so idlePipelines reads
// it by reflection.
func idlePipelines(stats *redis.PoolStats) int {
	pool := reflect.Indirect(reflect.ValueOf(*stats).FieldByName("PipelineStats"))
	if pool.Kind() != reflect.Struct {
		return 0
	}
	if idle := pool.FieldByName("IdleConns"); idle.CanUint() {
		return int(idle.Uint())
	}
	return 0
}
