package redistest

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// faulty returns a client of the shared server, and its Faults.
func faulty(t *testing.T) (*Faults, rueidis.Client) {
	t.Helper()
	f := new(Faults)
	return f, NewClient(t, f.Break)
}

func incr(ctx context.Context, c rueidis.Client, key string) (int64, error) {
	return c.Do(ctx, c.B().Incr().Key(key).Build()).AsInt64()
}

// TestLoseReply checks that a caller whose reply is lost gets an error, although its command was
// executed, and that only the reply to the given command is lost.
func TestLoseReply(t *testing.T) {
	f, c := faulty(t)
	key := Key(t)
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

func TestRefuse(t *testing.T) {
	f := new(Faults)
	f.Refuse(1)
	dial := func() error {
		c, err := f.Dial(t.Context(), Addr(t), new(net.Dialer), nil)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	if err := dial(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the first dial: %v, want refused", err)
	}
	if err := dial(); err != nil {
		t.Errorf("the second dial: %v", err)
	}
}

// TestCut checks that after Cut, the client repeats a read on a new connection.
func TestCut(t *testing.T) {
	f, c := faulty(t)
	key := Key(t)
	f.Cut()
	if err := c.Do(t.Context(), c.B().Exists().Key(key).Build()).Error(); err != nil {
		t.Error(err)
	}
}

func TestDelay(t *testing.T) {
	f, c := faulty(t)
	key := Key(t)
	const late = 50 * time.Millisecond
	f.Delay(late)
	sent := time.Now()
	if _, err := incr(t.Context(), c, key); err != nil || time.Since(sent) < late {
		t.Errorf("answered after %v, %v", time.Since(sent), err)
	}
	f.Delay(0)
	if n, err := incr(t.Context(), c, key); n != 2 || err != nil {
		t.Errorf("INCR = %d, %v", n, err)
	}
}
