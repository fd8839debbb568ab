package window_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) { redistest.MainParallel(m) }

func must[T any](v T, err error) T { return redistest.Must(v, err) }

// check fails the test if err is not nil.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// do sends a command to Redis.
func do(t *testing.T, c rueidis.Client, command ...string) {
	t.Helper()
	if err := c.Do(t.Context(), c.B().Arbitrary(command...).Build()).Error(); err != nil {
		t.Fatalf("%q: %v", command, err)
	}
}

// limit parses a limit.
func limit(s string) window.Limit {
	l, err := window.ParseLimit(s)
	if err != nil {
		panic(err)
	}
	return l
}

// parsed parses limits.
func parsed(s ...string) (all []window.Limit) {
	for _, text := range s {
		all = append(all, limit(text))
	}
	return all
}

// limits returns a Config with the given limits.
func limits(s ...string) window.Config { return window.Config{Limits: parsed(s...)} }

// with returns the limiter with other limits, which must be valid.
func with(l *window.Limiter, texts ...string) *window.Limiter {
	return must(l.With(parsed(texts...)...))
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// noon is the time at which tests start.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// clock is a clock that a test sets.
type clock struct{ ms atomic.Int64 }

func (c *clock) now() time.Time { return time.UnixMilli(c.ms.Load()).UTC() }

func (c *clock) set(at time.Time) { c.ms.Store(at.UnixMilli()) }

func (c *clock) pass(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// bench is a limiter under test, on Redis or in memory, whose clock the test sets.
type bench struct {
	*testing.T
	*window.Limiter
	clock *clock
	redis rueidis.Client // nil in memory
}

// both runs the test on Redis and in memory.
func both(t *testing.T, cfg window.Config, test func(b bench)) {
	t.Helper()
	c := &clock{}
	c.set(noon)
	cfg.Now, cfg.Name, cfg.Timeout = c.now, redistest.Key(t), time.Minute
	t.Run("redis", func(t *testing.T) {
		client := redistest.Client(t)
		test(bench{t, must(window.New(window.On(client), cfg)), c, client})
	})
	c.set(noon)
	t.Run("local", func(t *testing.T) {
		test(bench{t, must(window.NewLocal(cfg)), c, nil})
	})
}

func (b bench) allow(event string, n int64) window.Decision {
	b.Helper()
	return b.good(b.AllowN(b.Context(), event, n))
}

func (b bench) peek(event string, n int64) window.Decision {
	b.Helper()
	return b.good(b.PeekN(b.Context(), event, n))
}

func (b bench) good(d window.Decision, err error) window.Decision {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	return d
}

func (b bench) inspect(event string) window.Snapshot {
	b.Helper()
	s, err := b.Inspect(b.Context(), event)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func (b bench) give(event string, d window.Decision) {
	b.Helper()
	if err := b.Refund(b.Context(), event, d); err != nil {
		b.Fatal(err)
	}
}

// stored returns the value and the expiry of the event's key in Redis. In memory it returns the
// snapshot instead.
func (b bench) stored(event string) string {
	b.Helper()
	s := b.inspect(event)
	if b.redis == nil {
		return fmt.Sprint(s)
	}
	return redistest.Stored(b.T, b.redis, s.Key)
}

// decide calls the method that the verb names.
func decide(ctx context.Context, l *window.Limiter, verb, event string, n int64) (window.Decision, error) {
	switch verb {
	case "peek":
		return l.PeekN(ctx, event, n)
	case "upTo":
		return l.AllowUpTo(ctx, event, n)
	case "charge":
		return l.Charge(ctx, event, n)
	}
	return l.AllowN(ctx, event, n)
}

// everyVerb calls every verb so that one unit stays counted, and returns the key.
func everyVerb(t *testing.T, l *window.Limiter, event string) string {
	t.Helper()
	_, err1 := l.Peek(t.Context(), event)
	d, err2 := l.Allow(t.Context(), event)
	again, err3 := l.Allow(t.Context(), event)
	err4 := l.Refund(t.Context(), event, d)
	err5 := l.Reset(t.Context(), event)
	d2, err6 := l.Wait(t.Context(), event)
	s, err7 := l.Inspect(t.Context(), event)
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil || !d.Allowed || again.Allowed || !d2.Allowed {
		t.Fatalf("%.40q: %v, allowed %v %v %v", event, err, d.Allowed, again.Allowed, d2.Allowed)
	}
	return s.Key
}

// key returns the key of an event in Redis.
func key(t *testing.T, l *window.Limiter, event string) string {
	t.Helper()
	return must(l.Inspect(t.Context(), event)).Key
}

// wellFormed checks that a key is name:{tag}:w in printable ASCII, and that its tag ends where it
// should.
func wellFormed(t *testing.T, name, key string) {
	t.Helper()
	tag, prefixed := strings.CutPrefix(key, name+":{")
	tag, suffixed := strings.CutSuffix(tag, "}:w")
	odd := strings.ContainsFunc(tag, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '{' || r == '}' })
	if !prefixed || !suffixed || odd || tag == "" || len(tag) > 3*128 {
		t.Fatalf("key %q", key)
	}
}

// hostile holds events that have broken other limiters, or could break one.
var hostile = []string{
	"}", "{", "}x", "{}", "{a}b", "a}b{c}", "a}:w", "%7D", "%", "~", "~a", " ", "\x00", "\xff\xfe", "ü", "\r\n*1\r\n$4\r\nQUIT\r\n",
	strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("x", 10<<20), strings.Repeat("\xff", 128), "KEYS[1]", "'..'", "a:w", "*", "a b",
}

// many returns n different events.
func many(n int) []string {
	events := make([]string, n)
	for i := range events {
		events[i] = fmt.Sprint("event-", i)
	}
	return events
}

// usedOf returns how many units of the event the first limit counts.
func usedOf(t *testing.T, l *window.Limiter, event string) int64 {
	t.Helper()
	return must(l.Inspect(t.Context(), event)).Limits[0].Used
}

// allowedAttempt is an attempt that was allowed and not refunded.
type allowedAttempt struct {
	at    time.Time
	units int64
}

// holds checks that no interval of length Per holds more than Max units.
func holds(t *testing.T, l window.Limit, log []allowedAttempt) {
	t.Helper()
	slices.SortStableFunc(log, func(a, b allowedAttempt) int { return a.at.Compare(b.at) })
	units, first := int64(0), 0
	for _, a := range log {
		units += a.units
		for ; a.at.Sub(log[first].at) >= l.Per; first++ {
			units -= log[first].units
		}
		if units > l.Max {
			t.Fatalf("%v: %d units from %v to %v", l, units, log[first].at, a.at)
		}
	}
}

// heap returns the bytes in use on the heap.
func heap() int { return int(memStats().HeapAlloc) }

// memStats returns the statistics of the memory after a garbage collection.
func memStats() (m runtime.MemStats) {
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}
