package pipeline

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
)

// masters says which slot ranges of a cluster share a queue: those of one master. So batches are
// large, and a master that hangs delays no other one's requests. Until the masters are known, each
// slot range has a queue of its own. Old knowledge does no harm but that: the client knows where to
// send.
type masters struct {
	queues [Ranges]atomic.Int32 // for each slot range, the index of its queue
	next   atomic.Int64         // when to ask again, since the Connection was made
}

// mastersRenewal is the time between two questions for the masters.
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

// set gives each slot range the queue of the first one whose first slot has the same master.
func (m *masters) set(shares []Share) {
	first := map[string]int{}
	for i := range m.queues {
		of := slices.IndexFunc(shares, func(s Share) bool { return s.First <= i*keys.Slots/Ranges && i*keys.Slots/Ranges <= s.Last })
		if of < 0 { // nobody has the slot
			m.queues[i].Store(int32(i))
			continue
		}
		queue, known := first[shares[of].Master]
		if !known {
			queue = i
			first[shares[of].Master] = i
		}
		m.queues[i].Store(int32(queue))
	}
}
