package remote

import (
	"slices"
	"testing"

	"github.com/redis/rueidis"
)

// TestUnrun: what did not run is sent again, and the answers that a key has got are those of its first attempts.
func TestUnrun(t *testing.T) {
	keys := []string{"a", "b", "a", "a", "b", "a"}
	lost := Answer{Err: rueidis.ErrNoSlot}
	ran := func(n int64) Answer { return Answer{Integers: []int64{n}} }
	answers := []Answer{lost, ran(1), ran(2), lost, ran(3), ran(4)}
	if open := unrun(keys, answers); !slices.Equal(open, []int{3, 5}) {
		t.Errorf("to be sent again: %v", open)
	}
	for i, want := range []int64{2, 1, 4, 0, 3, 0} {
		if (want == 0) != (answers[i].Err != nil) || want != 0 && answers[i].Integers[0] != want {
			t.Errorf("%d: %+v, want %d", i, answers[i], want)
		}
	}
	if open := unrun(keys, slices.Repeat([]Answer{ran(1)}, len(keys))); open != nil {
		t.Errorf("to be sent again: %v", open)
	}
}
