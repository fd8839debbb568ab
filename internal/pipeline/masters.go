package pipeline

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
)

// masters records which slot ranges of a cluster share a queue: those of one master. So batches are
// large, and a master that hangs does not delay requests of another. A slot range that two masters
// share has its own queue, and so does each one until the masters are known. Outdated knowledge
// does no other harm: the client knows where to send.
type masters struct {
	queues [Ranges]atomic.Int32 // for each slot range, the index of its queue
	next   atomic.Int64         // when to ask again, relative to the creation of the Connection
}

// mastersRenewal is the time between two queries for the masters.
const mastersRenewal = 10 * time.Second

// queueOf returns the index of the queue of a slot range.
func (c *Connection) queueOf(slotRange int) int { return int(c.masters.queues[slotRange].Load()) }

// followMasters asks a cluster for its masters in the background, if it is time.
func (c *Connection) followMasters() {
	cluster, next := c.up.Load().cluster, c.masters.next.Load()
	if cluster == nil || int64(c.elapsed()) < next || !c.masters.next.CompareAndSwap(next, math.MaxInt64) {
		return
	}
	go func() {
		if shares, err := cluster.Shares(context.Background()); err == nil {
			c.masters.set(shares)
		}
		c.masters.next.Store(int64(c.elapsed() + mastersRenewal))
	}()
}

// set gives each slot range of one master the queue of that master's first one.
func (m *masters) set(shares []Share) {
	first := map[string]int{}
	for i := range m.queues {
		queue, master := i, masterOf(i, shares)
		if known, ok := first[master]; ok {
			queue = known
		} else if master != "" {
			first[master] = i
		}
		m.queues[i].Store(int32(queue))
	}
}

// masterOf returns the master that has all slots of a range, or "" if there is none.
func masterOf(slotRange int, shares []Share) string {
	const width = keys.Slots / Ranges
	i := slices.IndexFunc(shares, func(s Share) bool { return s.First <= slotRange*width && slotRange*width+width-1 <= s.Last })
	if i < 0 {
		return ""
	}
	return shares[i].Master
}
