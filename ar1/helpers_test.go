package ar1_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) { redistest.MainParallel(m) }

func must[T any](v T, err error) T { return redistest.Must(v, err) }

// limits parses limits, and removes their Resolution.
func limits(texts ...string) (all []window.Limit) {
	for _, text := range texts {
		l := must(window.ParseLimit(text))
		l.Resolution = 0
		all = append(all, l)
	}
	return all
}

// perOf returns the Per of l in ms.
func perOf(l window.Limit) float64 { return float64(l.Per.Microseconds()) / 1000 }

// noon is the time at which tests start, in µs.
const noon = 1_700_000_000_000_000

// clock is a clock that a test sets.
type clock struct{ us atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.us.Store(noon)
	return c
}

func (c *clock) now() time.Time { return time.UnixMicro(c.us.Load()).UTC() }

func (c *clock) pass(d time.Duration) { c.us.Add(d.Microseconds()) }

// bench is a limiter under test, on a clock that the test sets.
type bench struct {
	*testing.T
	*ar1.Limiter
	clock *clock
}

// both runs a test on Redis and in memory, with a separate limiter for each.
func both(t *testing.T, cfg ar1.Config, test func(bench)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		c := newClock()
		cfg.Name, cfg.Now, cfg.Timeout = redistest.Key(t), c.now, time.Minute
		test(bench{t, must(ar1.New(window.On(redistest.Client(t)), cfg)), c})
	})
	t.Run("local", func(t *testing.T) { test(inMemory(t, cfg)) })
}

// inMemory returns a limiter in memory.
func inMemory(t *testing.T, cfg ar1.Config) bench {
	t.Helper()
	c := newClock()
	cfg.Name, cfg.Now = "local", c.now
	return bench{t, must(ar1.NewLocal(cfg)), c}
}

func (b bench) allow(event string, n int64) window.Decision {
	b.Helper()
	return b.decided(b.AllowN(b.Context(), event, n))
}

func (b bench) peek(event string, n int64) window.Decision {
	b.Helper()
	return b.decided(b.PeekN(b.Context(), event, n))
}

func (b bench) decided(d window.Decision, err error) window.Decision {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// level returns the level of the first limit of "e".
func (b bench) level() float64 {
	b.Helper()
	s, err := b.Inspect(b.Context(), "e")
	if err != nil {
		b.Fatal(err)
	}
	return s.Limits[0].Level
}
