package send

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/test/servertest"
)

func share(first, last int, master string) connection.Share {
	return connection.Share{First: first, Last: last, Master: master}
}

// TestSetMasters checks that each master has its own queue, that a replica gets the queue of the
// master that it replaces, that a master that is back gets its own one, that an empty list changes
// nothing, and that slots without a known master have queues of their own.
func TestSetMasters(t *testing.T) {
	const third = keys.Slots / 3
	m := &officeOf(connection.On(&shared{})).masters
	for i, step := range []struct {
		shares []connection.Share
		queues [4]int // for the first slots of the three thirds, and the last slot
	}{
		{nil, [4]int{0, 21, 42, 63}},
		{[]connection.Share{share(third, 2*third-1, "b"), share(0, third-1, "a"), share(2*third, keys.Slots-2, "a")}, [4]int{65, 64, 65, 63}},
		{nil, [4]int{65, 64, 65, 63}},
		{[]connection.Share{share(0, third-1, "c"), share(third, 2*third-1, "b"), share(2*third, keys.Slots-1, "c")}, [4]int{65, 64, 65, 65}}, // c replaces a
		{[]connection.Share{share(0, third-1, "b"), share(third, 2*third-1, "c"), share(2*third, keys.Slots-1, "d")}, [4]int{64, 65, 66, 66}},
		{[]connection.Share{share(0, third-1, "b"), share(third, keys.Slots-1, "e")}, [4]int{64, 65, 65, 65}}, // e gets the slots of c first
		{[]connection.Share{share(0, third-1, "f"), share(third, 2*third-1, "b"), share(2*third, keys.Slots-1, "d")}, [4]int{67, 64, 66, 66}},
		{[]connection.Share{share(0, 2*third-1, ""), share(2*third, keys.Slots-1, "d")}, [4]int{0, 21, 66, 66}},
	} {
		m.set(step.shares)
		for j, slot := range []int{0, third, 2 * third, keys.Slots - 1} {
			wantEqual(t, fmt.Sprintf("step %d, queue of slot %d", i, slot), m.ofSlot(slot).queue.index, step.queues[j])
		}
	}
	wantEqual(t, "queues", len(m.queues), slotRanges+4)
}

// A shared is a Client and a connection.Cluster that answers all calls.
type shared struct {
	shares []connection.Share
	err    error
	asked  int // number of calls of Shares
}

func (*shared) Close() {}

func (s *shared) Shares(context.Context) ([]connection.Share, error) {
	s.asked++
	return s.shares, s.err
}

func (s *shared) Send(_ context.Context, calls []*connection.ScriptCall) {
	for _, c := range calls {
		c.Answer([]int64{1}, nil)
	}
}

// TestMastersAreFollowed checks that a Connection queries the cluster for its masters when
// something is sent, at most every 10 s, and that it keeps the old masters if there is no answer.
func TestMastersAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &shared{shares: []connection.Share{share(0, keys.Slots-1, "all")}}
		l := &line{Timeout: time.Second, script: servertest.Script}
		l.Pipeline = New(connection.On(client), "test", nil)
		for i, step := range []struct {
			after  time.Duration
			change func()
			asked  int
			master string
		}{
			{0, func() {}, 1, "all"},
			{mastersRenewal - 1, func() { client.shares = nil }, 1, "all"},
			{1, func() { client.err = errors.New("no answer") }, 2, "all"},
			{mastersRenewal, func() { client.err = nil }, 3, "all"},
			{time.Hour, func() { client.shares = []connection.Share{share(0, keys.Slots-1, "next")} }, 4, "next"},
		} {
			servertest.Pass(step.after)
			step.change()
			mustCount(t, l, "an event")
			synctest.Wait()
			wantEqual(t, fmt.Sprint("asked after step ", i), client.asked, step.asked)
			wantEqual(t, fmt.Sprint("master after step ", i), l.MasterOf(l.Key("an event")), step.master)
		}
	})
}

// TestHungMasterDelaysNoOther checks that a master that hangs does not delay requests to other masters,
// even while the masters are not known. If they are, requests to the same master share batches.
func TestHungMasterDelaysNoOther(t *testing.T) {
	for _, known := range []bool{true, false} {
		servertest.OnFakeTime(t, func(t *testing.T, _ *servertest.Server) { testHungMaster(t, known) })
	}
}

func testHungMaster(t *testing.T, known bool) {
	t.Helper()
	nodes := servertest.NewCluster(2)
	l := newLine(t, servertest.ClusterClient(t, nodes))
	if !known {
		l.office.masters.next.Store(math.MaxInt64) // so that the cluster is never asked
	}
	mustCount(t, l, "before")
	synctest.Wait()
	var events [2][]string
	for _, event := range numbered(400) {
		node := keys.Slot(l.Key(event)) * 2 / keys.Slots
		events[node] = append(events[node], event)
	}
	nodes[0].Hold()
	var hung, others []*attempt
	for _, event := range events[0] {
		hung = append(hung, arrive(t.Context(), l, event))
	}
	for _, event := range events[1] {
		others = append(others, arrive(t.Context(), l, event))
	}
	for _, c := range others {
		wantError(t, "of the other master", c.wait().err, nil)
		wantEqual(t, "took", c.took, 0)
	}
	if known {
		wantEqual(t, "received by the master that hangs", len(nodes[0].Received()), maxSenders)
	}
	nodes[0].Release()
	for _, c := range hung {
		wantError(t, "of the hung master", c.wait().err, nil)
	}
}
