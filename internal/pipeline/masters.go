package pipeline

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
)

// masters records which slot ranges of a cluster share a queue: those that belong to the same
// master. So batches are large, but a master that hangs does not delay requests to other masters. A
// slot range that two masters share has its own queue. So does every slot range until the masters
// are known. Outdated information does no other harm, because the client itself knows where to send
// each call.
type masters struct {
	queues [Ranges]atomic.Int32 // for each slot range, the index of its queue
	next   atomic.Int64         // when to query the cluster again, relative to the creation of the Connection
}

// mastersRenewal is the time between two queries for the masters.
const mastersRenewal = 10 * time.Second

// queueOf returns the index of the queue for slotRange.
func (c *Connection) queueOf(slotRange int) int { return int(c.masters.queues[slotRange].Load()) }

// followMasters queries a cluster for its masters in the background, if a query is due.
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

// set assigns the slot ranges of each master to the queue of that master's first slot range.
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

// masterOf returns the master that has all slots of slotRange, or "" if there is no such master.
func masterOf(slotRange int, shares []Share) string {
	const width = keys.Slots / Ranges
	i := slices.IndexFunc(shares, func(s Share) bool { return s.First <= slotRange*width && slotRange*width+width-1 <= s.Last })
	if i < 0 {
		return ""
	}
	return shares[i].Master
}
