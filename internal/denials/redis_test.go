package denials_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/denials"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const patience = 10 * time.Second

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A process simulates a process that has a cache of denials and a client.
type process struct {
	*denials.Cache
	client  rueidis.Client
	limiter *window.Limiter // a limiter without a denial cache
}

// newProcess returns a process for a limiter with the given name, which allows two units per hour
// and three per two hours. The limiter's clock stands still, so that a key often has the same bytes
// again.
func newProcess(client rueidis.Client, name string) process {
	p := process{client: client}
	limits := []window.Limit{window.PerHour(2), {Max: 3, Per: 2 * time.Hour}}
	now := func() time.Time { return noon }
	p.limiter = must(window.New(window.On(client), window.Config{Name: name, Limits: limits, Timeout: patience, Now: now}))
	p.Cache = denials.New(10, p.get, func(context.Context) {})
	return p
}

// get sends a cached GET.
func (p process) get(ctx context.Context, key string, _, ttl time.Duration) (value string, hit bool, err error) {
	result := p.client.DoCache(ctx, p.client.B().Get().Key(key).Cache(), ttl)
	value, err = result.ToString()
	if rueidis.IsRedisNil(err) {
		err = nil
	}
	return value, result.IsCacheHit(), err
}

// A caller makes an attempt in steps, so that other things can happen in between: it calls Lookup,
// sends the attempt to Redis, and calls Remember or Forget.
type caller struct {
	process
	event, key string
	next       func(ctx context.Context, t *testing.T) // nil once the attempt is over

	result  denials.Result
	sent    time.Time
	allowed bool
	reply   denials.Reply
}

func (p process) newCaller(t *testing.T, event string) *caller {
	t.Helper()
	c := &caller{process: p, event: event, key: must(p.limiter.Inspect(t.Context(), event)).Key}
	c.next = c.lookup
	return c
}

func (c *caller) lookup(ctx context.Context, t *testing.T) {
	t.Helper()
	var err error
	c.result, err = c.Lookup(ctx, c.key, denials.Request{Units: 1}, patience)
	c.next = c.ask
	if c.result.Denied || c.left(ctx, t, err) {
		c.next = nil
	}
}

// ask sends the attempt to Redis. A caller that leaves before the reply does not know whether the
// attempt was counted.
func (c *caller) ask(ctx context.Context, t *testing.T) {
	t.Helper()
	c.sent = time.Now()
	d, err := c.limiter.Allow(ctx, c.event)
	if c.next = c.remember; c.left(ctx, t, err) {
		c.Forget(c.key)
		c.next = nil
	}
	c.allowed, c.reply = d.Allowed, denials.Reply{At: d.At.UnixMilli()}
	for _, u := range d.Usage {
		c.reply.Rows = append(c.reply.Rows, u.Used, u.RetryAfter.Milliseconds(), u.ResetAfter.Milliseconds())
	}
}

func (c *caller) remember(context.Context, *testing.T) {
	c.Remember(c.result, c.sent, c.allowed, c.reply)
	c.next = nil
}

// left reports whether the caller has left.
func (c *caller) left(ctx context.Context, t *testing.T, err error) bool {
	t.Helper()
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	return err != nil
}

// attempt takes all steps, and reports whether the attempt is allowed.
func (c *caller) attempt(t *testing.T) bool {
	t.Helper()
	for c.next != nil {
		c.next(t.Context(), t)
	}
	return c.allowed
}

// TestDenialsAreRight takes random steps of several callers, which may leave, and of another
// process, which resets the event and makes attempts. It checks that once the client has received
// all notifications, a denial is repeated only if Redis would deny.
func TestDenialsAreRight(t *testing.T) {
	client, admin := redistest.Client(t), redistest.NewClient(t, nil)
	rounds, denied := 300, 0
	if testing.Short() {
		rounds = 30
	}
	for round := range rounds {
		rng, name := rand.New(rand.NewPCG(uint64(round), 1)), redistest.Key(t)
		p, other := newProcess(client, name), newProcess(admin, name)
		callers := []*caller{p.newCaller(t, "e"), p.newCaller(t, "e"), p.newCaller(t, "e")}
		for range 40 {
			play(t, rng, p, other.limiter, callers)
		}
		for _, c := range callers {
			c.attempt(t)
		}
		if rng.IntN(2) == 0 {
			disturb(t, rng, other.limiter)
		}
		if !p.isRight(t, other.limiter) {
			denied++
		}
	}
	if denied < rounds/10 || denied > rounds*9/10 {
		t.Errorf("weak test: %d of %d denied at the end", denied, rounds)
	}
}

// play performs one step: a caller's next action, or a disturbance from another process.
func play(t *testing.T, rng *rand.Rand, p process, other *window.Limiter, callers []*caller) {
	t.Helper()
	i := rng.IntN(len(callers))
	switch dice := rng.IntN(20); {
	case callers[i].next == nil:
		callers[i] = p.newCaller(t, "e")
	case dice < 14:
		callers[i].next(t.Context(), t)
	case dice < 16:
		gone, leave := context.WithCancel(t.Context())
		leave()
		callers[i].next(gone, t)
	default:
		disturb(t, rng, other)
	}
}

// disturb acts as another process: it resets the event or makes an attempt.
func disturb(t *testing.T, rng *rand.Rand, other *window.Limiter) {
	t.Helper()
	if rng.IntN(2) == 0 {
		must(0, other.Reset(t.Context(), "e"))
	} else {
		must(other.Allow(t.Context(), "e"))
	}
}

// isRight waits until the client has received all notifications, and then checks that an attempt
// gets the decision that Redis would make. It reports whether the attempt is allowed.
func (p process) isRight(t *testing.T, other *window.Limiter) (allowed bool) {
	t.Helper()
	c := p.newCaller(t, "e")
	p.awaitNotifications(t, c.key)
	awaitLease()
	now := must(other.Peek(t.Context(), "e")).Allowed
	if got := c.attempt(t); got != now {
		t.Fatalf("allowed %v, while Redis says %v", got, now)
	}
	return now
}

// awaitLease waits until the results of earlier fetches can no longer be used.
func awaitLease() {
	for over := time.Now().Add(denials.Lease); time.Now().Before(over); {
	}
}

// awaitNotifications waits until the client has received all notifications. It sends a GET for a
// key that the client has never read. Redis sends pending notifications on the same connection,
// before the reply to that GET.
func (p process) awaitNotifications(t *testing.T, key string) {
	t.Helper()
	if _, hit, err := p.get(t.Context(), fmt.Sprint(key, rand.Uint64()), patience, time.Hour); hit || err != nil {
		t.Fatal(hit, err)
	}
}

// TestSameBytesAreAnotherCopy checks that a denial from before a Reset is not repeated, even if an
// allowed attempt in the same millisecond has made the key contain the same bytes again.
func TestSameBytesAreAnotherCopy(t *testing.T) {
	client, name := redistest.Client(t), redistest.Key(t)
	p, other := newProcess(client, name), newProcess(redistest.NewClient(t, nil), name).limiter
	must(other.AllowN(t.Context(), "e", 2))
	p.newCaller(t, "e").attempt(t) // from this point on, the key is looked up
	must(0, other.Reset(t.Context(), "e"))
	must(other.Allow(t.Context(), "e"))
	c := p.newCaller(t, "e")
	p.awaitNotifications(t, c.key)
	c.lookup(t.Context(), t)
	must(other.Allow(t.Context(), "e"))
	if c.attempt(t) {
		t.Fatal("a third unit is allowed")
	}
	must(0, other.Reset(t.Context(), "e"))
	must(other.Allow(t.Context(), "e"))
	p.awaitNotifications(t, c.key)
	awaitLease()
	if _, hit, err := p.get(t.Context(), c.key, patience, time.Hour); hit || err != nil { // the client caches the key again
		t.Fatalf("hit %v, %v", hit, err)
	}
	if !p.newCaller(t, "e").attempt(t) {
		t.Error("denied by a denial from before the Reset")
	}
}

// TestDenialsAreFew checks that the cache never holds more denials than its capacity.
func TestDenialsAreFew(t *testing.T) {
	p := newProcess(redistest.Client(t), redistest.Key(t))
	for i := range 100 {
		for range 4 { // the last two are denied
			p.newCaller(t, fmt.Sprint(i)).attempt(t)
		}
		if n := p.Len(); n != min(10, i+1) {
			t.Fatalf("%d are cached after %d", n, i+1)
		}
	}
}
