package send

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/keys"
)

// masters knows which queue serves a hash slot. Each master of a cluster has its own queue. So
// batches are large, but a master that hangs does not delay requests to other masters. As long as the
// master of a slot is not known, each sixty-fourth of the slots has its own queue, for the same reason.
// Outdated information does no other harm, because the client itself knows where to send each call.
type masters struct {
	office *office
	ranges [slotRanges]served       // serve slots whose master is not known; the first one serves a server that is not a cluster
	table  atomic.Pointer[[]served] // sorted by slots; nil until the masters are known
	next   atomic.Int64             // when to query the cluster again, relative to the creation of the Connection

	// Only one query runs at a time, and owns these fields.

	queues []*queue // by their indices: those of ranges, and then those of masters
	ids    []string // the ID of the master that each queue serves, or served last; "" for those of ranges
}

const slotRanges = 64

// served is a range of hash slots, with the master and the queue that serve it.
type served struct {
	first, last int
	master      string // the ID; "" if it is not known
	queue       *queue
}

// mastersRenewal is the time between two queries for the masters.
const mastersRenewal = 10 * time.Second

func (m *masters) newQueue() *queue {
	q := &queue{office: m.office, index: len(m.queues)}
	q.serve = q.run
	m.queues, m.ids = append(m.queues, q), append(m.ids, "")
	return q
}

// of returns what serves key. There must be a client.
func (m *masters) of(key string) *served {
	if m.office.conn.Cluster() == nil {
		return &m.ranges[0]
	}
	return m.ofSlot(keys.Slot(key))
}

func (m *masters) ofSlot(slot int) *served {
	if table := m.table.Load(); table != nil {
		i, found := slices.BinarySearchFunc(*table, slot, func(s served, slot int) int {
			if s.first <= slot && slot <= s.last {
				return 0
			}
			return cmp.Compare(s.first, slot)
		})
		if found {
			return &(*table)[i]
		}
	}
	return &m.ranges[slot*slotRanges/keys.Slots]
}

// serves reports whether a request can still use the queue with the given index.
func (m *masters) serves(index int) bool {
	table := m.table.Load()
	return table == nil || slices.ContainsFunc(*table, func(s served) bool { return s.queue.index == index })
}

// follow queries a cluster for its masters in the background, if a query is due.
func (m *masters) follow() {
	conn, next := m.office.conn, m.next.Load()
	if conn.Cluster() == nil || int64(conn.Elapsed()) < next || !m.next.CompareAndSwap(next, math.MaxInt64) {
		return
	}
	go func() {
		if shares, err := conn.Cluster().Shares(context.Background()); err == nil {
			m.set(shares)
		}
		m.next.Store(int64(conn.Elapsed() + mastersRenewal))
	}()
}

// set assigns a queue to each master. An empty list is not an answer.
func (m *masters) set(shares []connection.Share) {
	var table []served
	for _, s := range shares {
		if s.Master != "" {
			table = append(table, served{s.First, s.Last, s.Master, m.assign(s, shares)})
		}
	}
	if len(table) > 0 {
		slices.SortFunc(table, func(a, b served) int { return cmp.Compare(a.first, b.first) })
		m.table.Store(&table)
	}
}

// assign returns the queue of a master. A replica that has taken over gets the queue of the master that
// it replaced, with its circuit breakers.
func (m *masters) assign(s connection.Share, all []connection.Share) *queue {
	if i := slices.Index(m.ids, s.Master); i >= 0 {
		return m.queues[i]
	}
	q := m.ofSlot(s.First).queue
	before := m.ids[q.index]
	if before == "" || slices.ContainsFunc(all, func(s connection.Share) bool { return s.Master == before }) {
		q = m.newQueue()
	}
	m.ids[q.index] = s.Master
	return q
}
