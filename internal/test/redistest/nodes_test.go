package redistest

import (
	"context"
	"testing"
)

// TestHungNodeIsReplaced checks that a node that hangs although no test has paused it is replaced,
// so that later tests get a healthy cluster.
func TestHungNodeIsReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until a node counts as hung")
	}
	nodes := Replicated(t)
	hung := nodes.ReplicaOf(t, nodes.MasterOf(t, 0))
	id, before := hung.id, nodes.Hung
	if err := hung.node.pause(); err != nil {
		t.Fatal(err)
	}
	nodes.Heal(t)
	if hung.id == id || hung.hangs(t.Context()) || nodes.Hung != before+1 {
		t.Errorf("it still hangs; %d nodes were replaced", nodes.Hung-before)
	}
	nodes.Heal(t)
}

// TestKillAfterFailovers kills a master whose replica was elected and then replaced a moment ago.
func TestKillAfterFailovers(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until the replica can be elected again")
	}
	nodes := Replicated(t)
	setNodeTimeout := func(milliseconds string) {
		for _, s := range nodes.All {
			check(t, s.Do(context.Background(), "CONFIG", "SET", "cluster-node-timeout", milliseconds).Error())
		}
	}
	setNodeTimeout("1500")
	t.Cleanup(func() {
		nodes.Heal(t)
		setNodeTimeout("5000")
	})
	master := nodes.MasterOf(t, 0)
	replica := nodes.Failover(t, master)
	nodes.Failover(t, replica)
	nodes.AwaitVotes(t)
	master.Kill(t)
	nodes.AwaitFailover(t, master, replica)
	nodes.Heal(t)
	if nodes.MasterOf(t, 0) != replica {
		t.Error("the other nodes ignore the replica")
	}
}
