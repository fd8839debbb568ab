package inspect

import (
	"strings"
	"testing"
)

// TestTopFailedNode checks that top names a node that failed, and does not claim to have seen its
// keys.
func TestTopFailedNode(t *testing.T) {
	o := &overview{Keys: 7, Failed: "127.0.0.1:7003: ROLE: down", ended: true}
	const want = "keys    all seen, about 7, except on nodes that failed\nfailed  127.0.0.1:7003: ROLE: down\n"
	if head := o.head(); !strings.HasSuffix(head, want) {
		t.Error(head)
	}
}
