package gate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/lua"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// limits are 2 in an hour, and 3 in two.
func newRedis(t *testing.T, client rueidis.Client, name string, cache int) *Redis[int64] {
	t.Helper()
	cfg := Config[int64]{
		Name: name, DenialCache: cache, Timeout: 10 * time.Second, Most: 1 << 53,
		Clock: Clock{Unit: time.Time.UnixMilli, Time: time.UnixMilli, End: 1 << 47, Year: 6429},
		Usage: func(_ int, used, _ int64, _, _ time.Duration) int64 { return used },
	}
	for i, most := range []int64{2, 3} {
		cfg.Limits = append(cfg.Limits, Limit{Text: fmt.Sprint("limit ", i), Max: most, Per: time.Duration(i+1) * time.Hour, Resolution: time.Millisecond})
	}
	l, err := New(cfg, "w")
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRedis(client, lua.Window, l)
	if err != nil {
		t.Fatal(err)
	}
	l.State = r
	return r
}

// A caller goes through the steps of an attempt one at a time, so that other things happen in between.
type caller struct {
	m      *denials[int64]
	began  time.Time
	known  *denial
	value  string
	denied bool
	done   bool
	t      *turn
}

// step makes the next step, and returns the answer of Redis or of what is remembered, if that was the last.
func (c *caller) step(ctx context.Context, t *testing.T) {
	t.Helper()
	var err error
	switch {
	case c.began.IsZero():
		c.began = time.Now()
		c.known = c.m.find("e")
	case c.known == nil || c.known.n != 1 || c.t != nil:
		c.done = true
		_, err = c.m.ask(ctx, c.began, "e", 1, c.value)
		if c.t != nil {
			c.m.endTurn("e", c.t, err)
		}
		if ctx.Err() != nil {
			err = nil
		}
	case c.value == "" && !c.denied:
		c.value, c.denied, err = c.m.look(t.Context(), c.began, time.Now(), "e", c.known)
		c.done = c.denied
		if turn, first := c.m.takeTurn("e"); !c.done && first {
			c.t = turn
		} else if first {
			c.m.endTurn("e", turn, nil)
		} else {
			c.done = true // it would wait for another
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDenialsAreRight plays random steps of several callers, some of whom leave in the middle, and of others who reset, refund and
// admit: whenever the client has heard of all changes, the answer is that of Redis.
func TestDenialsAreRight(t *testing.T) {
	client, admin := redistest.Client(t), redistest.NewClient(t, nil)
	rounds := 300
	if testing.Short() {
		rounds = 30
	}
	denied, admitted := 0, 0
	for round := range rounds {
		rng := rand.New(rand.NewPCG(uint64(round), 1))
		name := redistest.Key(t)
		r, other := newRedis(t, client, name, 10), newRedis(t, admin, name, 0)
		callers := make([]*caller, 3)
		for range 40 {
			i := rng.IntN(len(callers))
			switch dice := rng.IntN(20); {
			case callers[i] == nil || callers[i].done:
				callers[i] = &caller{m: r.denials}
			case dice < 14:
				callers[i].step(t.Context(), t)
			case dice < 16: // it leaves
				gone, cancel := context.WithCancel(t.Context())
				cancel()
				callers[i].step(gone, t)
			default:
				disturb(t, other, dice)
			}
		}
		if rng.IntN(2) == 0 {
			disturb(t, other, 16)
		}
		for _, c := range callers {
			for c != nil && !c.done {
				c.step(t.Context(), t)
			}
		}
		if settled(t, admin, r, other) {
			admitted++
		} else {
			denied++
		}
	}
	if denied < rounds/10 || admitted < rounds/10 {
		t.Errorf("a poor test: %d denied and %d admitted in the end", denied, admitted)
	}
}

// TestDenialsAreRightUnderLoad is the same with callers that run.
func TestDenialsAreRightUnderLoad(t *testing.T) {
	client, admin := redistest.Client(t), redistest.NewClient(t, nil)
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	for range rounds {
		name := redistest.Key(t)
		r, other := newRedis(t, client, name, 10), newRedis(t, admin, name, 0)
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				for range 30 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(1000))*time.Microsecond)
					_, _ = r.Decide(ctx, Allow, "e", 1)
					cancel()
				}
			})
		}
		for range 3 {
			callers.Go(func() {
				for range 20 {
					disturb(t, other, 16+rand.IntN(6))
				}
			})
		}
		callers.Wait()
		settled(t, admin, r, other)
	}
}

// disturb is what another process does.
func disturb(t *testing.T, other *Redis[int64], dice int) {
	t.Helper()
	var err error
	if dice < 19 {
		err = other.Reset(t.Context(), "e")
	} else {
		_, err = other.Decide(t.Context(), Allow, "e", 1)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// settled waits until the client has heard of all changes of the key, and compares the answer with what Redis says then. Attempts whose
// callers left may still be counted meanwhile, so that an admission can be out of date, but not a denial.
func settled(t *testing.T, admin rueidis.Client, r, other *Redis[int64]) (allowed bool) {
	t.Helper()
	hear(t, admin, r)
	for over := time.Now().Add(lease); time.Now().Before(over); { // what was looked at before is told no more
	}
	got, err := r.Decide(t.Context(), Allow, "e", 1)
	now, err1 := other.Decide(t.Context(), Peek, "e", 1)
	if err != nil || err1 != nil || !got.Allowed && now.Allowed {
		t.Fatalf("got %+v, %v, while Redis says %+v, %v", got, err, now, err1)
	}
	return got.Allowed
}

// hear waits until the client has the value of the key that Redis has.
func hear(t *testing.T, admin rueidis.Client, r *Redis[int64]) {
	t.Helper()
	key := r.L.Key("e")
	for late := time.Now().Add(10 * time.Second); ; {
		now, err := admin.Do(t.Context(), admin.B().Get().Key(key).Build()).ToString()
		if err != nil && !rueidis.IsRedisNil(err) {
			t.Fatal(err)
		}
		here, _, err := r.runner.Look(t.Context(), 10*time.Second, key, time.Minute)
		switch {
		case err != nil:
			t.Fatal(err)
		case here == now:
			return
		case time.Now().After(late):
			t.Fatal("the client does not hear of a change")
		}
	}
}

// TestDenialsAreFew: no more are remembered than were asked for, and none that is over.
func TestDenialsAreFew(t *testing.T) {
	r := newRedis(t, redistest.Client(t), redistest.Key(t), 10)
	for i := range 1000 {
		for range 4 {
			if _, err := r.Decide(t.Context(), Allow, fmt.Sprint(i), 1); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(r.denials.of); n != min(10, i+1) {
			t.Fatalf("%d are remembered after %d", n, i+1)
		}
	}
	if n := len(r.denials.turns); n != 0 {
		t.Errorf("%d turns did not end", n)
	}
}
