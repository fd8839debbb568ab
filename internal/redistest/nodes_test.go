package redistest

import "testing"

// TestHungNodeIsReplaced checks that a node that hangs without a test's doing does not break the
// cluster for later tests.
func TestHungNodeIsReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits until a node is taken for hung")
	}
	nodes := Replicated(t)
	hung := nodes.ReplicaOf(t, nodes.MasterOf(t, 0))
	id := hung.id
	if err := hung.node.pause(); err != nil {
		t.Fatal(err)
	}
	nodes.Heal(t)
	if hung.id == id || hung.hangs(t.Context()) {
		t.Error("it still hangs")
	}
	nodes.Heal(t)
}
