package pipeline

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/test/servertest"
)

// TestSetMasters checks that the slot ranges of a master share the queue of its first slot range. A
// slot range keeps its own queue if two masters share it, if it has no master, or if the masters
// have no IDs.
func TestSetMasters(t *testing.T) {
	const width = keys.Slots / Ranges
	c := newConnection(func() {})
	c.masters.set([]Share{{0, 2*width - 2, "a"}, {2*width - 1, 4 * width, "b"}, {5 * width, 6*width - 1, "a"}, {6 * width, keys.Slots - 1, "c"}})
	for i, want := range []int{0, 1, 2, 2, 4, 0, 6, 6, 6} {
		wantEqual(t, fmt.Sprint("queue of range ", i), c.queueOf(i), want)
	}
	c.masters.set([]Share{{0, width - 1, "a"}, {2 * width, keys.Slots - 1, "b"}})
	for i, want := range []int{0, 1, 2, 2} {
		wantEqual(t, fmt.Sprint("later, queue of range ", i), c.queueOf(i), want)
	}
	c.masters.set([]Share{{0, 2*width - 1, ""}, {2 * width, keys.Slots - 1, ""}})
	for i := range Ranges {
		wantEqual(t, fmt.Sprint("without IDs, queue of range ", i), c.queueOf(i), i)
	}
}

// A shared is a Client and a Cluster that answers all calls.
type shared struct {
	shares []Share
	err    error
	asked  int // number of calls of Shares
}

func (*shared) Close() {}

func (s *shared) Shares(context.Context) ([]Share, error) {
	s.asked++
	return s.shares, s.err
}

func (s *shared) Send(_ context.Context, calls []*ScriptCall) {
	for _, c := range calls {
		c.Answer([]int64{1}, nil)
	}
}

// TestMastersAreFollowed checks that a Connection queries the cluster for its masters when
// something is sent, at most every 10 s, and that it keeps the old masters if there is no answer.
func TestMastersAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &shared{shares: []Share{{0, keys.Slots - 1, "all"}}}
		l := &line{Timeout: time.Second, script: servertest.Script}
		l.Pipeline = New(On(client), "test", nil)
		last := Ranges - 1
		for i, step := range []struct {
			after  time.Duration
			change func()
			asked  int
			queue  int
		}{
			{0, func() {}, 1, 0},
			{mastersRenewal - 1, func() { client.shares = nil }, 1, 0},
			{1, func() { client.err = errors.New("no answer") }, 2, 0},
			{mastersRenewal, func() { client.err = nil }, 3, last},
			{time.Hour, func() {}, 4, last},
		} {
			servertest.Pass(step.after)
			step.change()
			mustCount(t, l, "an event")
			synctest.Wait()
			wantEqual(t, fmt.Sprint("asked after step ", i), client.asked, step.asked)
			wantEqual(t, fmt.Sprint("queue after step ", i), l.conn.queueOf(last), step.queue)
		}
	})
}

// TestHungMasterDelaysNoOther checks that requests to the same master of a cluster share batches,
// and that a master that hangs does not delay requests to other masters.
func TestHungMasterDelaysNoOther(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, _ *servertest.Server) {
		nodes := servertest.NewCluster(2)
		l := newLine(t, servertest.ClusterClient(t, nodes))
		mustCount(t, l, "before")
		synctest.Wait()
		var events [2][]string
		for _, event := range numbered(400) {
			node := l.conn.queueOf(l.Range(l.Key(event))) / (Ranges / 2)
			events[node] = append(events[node], event)
		}
		nodes[0].Hold()
		var hung, others []*caller
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
		wantEqual(t, "received by the master that hangs", len(nodes[0].Received()), maxSenders)
		nodes[0].Release()
		for _, c := range hung {
			wantError(t, "of the hung master", c.wait().err, nil)
		}
	})
}
