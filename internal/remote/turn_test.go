package remote

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// TestOutagesTakeTurns: however calls end at once, an outage begins and ends in turn.
func TestOutagesTakeTurns(t *testing.T) {
	open, turns := false, 0
	r := &Runner{made: time.Now(), tell: func(_ int, began bool) { // never two at once
		if open == began {
			t.Errorf("turn %d: begins %v", turns, began)
		}
		open = !open
		turns++
	}}
	var calls sync.WaitGroup
	for c := range 4 {
		calls.Go(func() {
			for n := range 100_000 {
				ends := []error{rueidis.ErrNoSlot, nil}[min(1, (n+c)%5/4)]
				r.learn(context.Background(), 0, 1<<62, ends)
			}
		})
	}
	calls.Wait()
	if turns < 100 {
		t.Errorf("a poor test: %d turns", turns)
	}
}
