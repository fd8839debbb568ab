package redistest

import (
	"context"
	"testing"

	"github.com/redis/rueidis"
)

// TestLoseReply checks that a caller whose reply is lost gets an error, although its command was
// executed, and that only the reply to the given command is lost.
func TestLoseReply(t *testing.T) {
	f, key := new(Faults), Key(t)
	c := NewClient(t, f.Break)
	f.LoseReply("EVALSHA")
	if n, err := incr(t.Context(), c, key); n != 1 || err != nil {
		t.Errorf("INCR = %d, %v: a fault for EVALSHA broke it", n, err)
	}
	for want := int64(3); want <= 21; want += 2 {
		f.LoseReply("INCR")
		if n, err := incr(t.Context(), c, key); err == nil {
			t.Fatalf("INCR = %d, want an error", n)
		}
		if n, err := incr(t.Context(), c, key); n != want || err != nil {
			t.Fatalf("the next INCR = %d, %v, want %d", n, err, want)
		}
	}
}

func incr(ctx context.Context, c rueidis.Client, key string) (int64, error) {
	return c.Do(ctx, c.B().Incr().Key(key).Build()).AsInt64()
}
