package record_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/record"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// pers are some of each width of a time in a record, and at its ends.
var pers = []time.Duration{
	time.Second, 65_535 * time.Millisecond, 65_536 * time.Millisecond, time.Hour, 16_777_216 * time.Millisecond,
	24 * time.Hour, 4_294_967_295 * time.Millisecond, 4_294_967_296 * time.Millisecond, 36_525 * 24 * time.Hour,
}

// TestWindow: whatever limits count whatever, their Pers are found in the record, also of those that are only carried along.
func TestWindow(t *testing.T) {
	for range 200 {
		h := history{name: redistest.Key(t), now: time.Date(2025, 3, 4, 14, 0, 0, 0, time.UTC)}
		want := choose()
		h.count(t, want)
		h.count(t, want[:1])
		if got := record.Window(get(t, h.name+":{e}:w")); !same(got, want) {
			t.Fatalf("%v: %v", want, got)
		}
	}
}

// history is what happens to an event in less than a second.
type history struct {
	name string
	now  time.Time
}

// count counts some units, also by a clock that steps back.
func (h *history) count(t *testing.T, pers []time.Duration) {
	t.Helper()
	cfg := window.Config{Name: h.name, Now: func() time.Time { return h.now }}
	for _, per := range pers {
		cfg.Limits = append(cfg.Limits, window.Limit{Max: 1 << 53, Per: per, Resolution: per / time.Duration(1+rand.IntN(200)) / 1e6 * 1e6})
	}
	l, err := window.New(redistest.Client(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for range 1 + rand.IntN(20) {
		h.now = h.now.Add(time.Duration(rand.IntN(20)-4) * time.Millisecond)
		if _, err := l.AllowN(t.Context(), "e", 1<<rand.IntN(1+rand.IntN(40))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAR1(t *testing.T) {
	for range 100 {
		want := choose()
		cfg := ar1.Config{Name: redistest.Key(t), Now: func() time.Time { return time.Unix(1e9, 0) }}
		for _, per := range want {
			cfg.Limits = append(cfg.Limits, window.Limit{Max: 1 + rand.Int64N(1e7), Per: per})
		}
		l, err := ar1.New(redistest.Client(t), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Allow(t.Context(), "e"); err != nil {
			t.Fatal(err)
		}
		if got := record.AR1(get(t, cfg.Name+":{e}:a")); !same(got, want) {
			t.Fatalf("limits %v: %v", cfg.Limits, got)
		}
	}
}

// choose takes some of the Pers, in any order.
func choose() []time.Duration {
	some := slices.Clone(pers)
	rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	return some[:1+rand.IntN(len(some))]
}

func same(got, want []time.Duration) bool {
	return slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
}

func get(t *testing.T, key string) string {
	t.Helper()
	c := redistest.Client(t)
	value, err := c.Do(t.Context(), c.B().Get().Key(key).Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// FuzzAnyBytes: what is no record does no harm.
func FuzzAnyBytes(f *testing.F) {
	f.Add("")
	f.Add("\x81\x00\x00\x00\x00\x00\x01\x3f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
	f.Add("\xa1\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	f.Fuzz(func(t *testing.T, value string) {
		if n := max(len(record.Window(value)), len(record.AR1(value))); n > len(value)/6 {
			t.Errorf("%d sections in %d bytes", n, len(value))
		}
	})
}
