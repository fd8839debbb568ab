package records_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/records"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// sets lists limits whose records have every layout: units of each width, buckets, and long
// windows.
var sets = [][]string{{"5/1h"}, {"1/5s", "5/1h", "20/1d"}, {"100/1m"}, {"70000/10s"}, {"1000000000/1d"}, {"10/300ms", "5000/36525d"}, {"9/1h", "500/90d"}}

// limits parses limits.
func limits(t *testing.T, texts []string) (ls []window.Limit) {
	t.Helper()
	for _, text := range texts {
		l, err := window.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		ls = append(ls, l)
	}
	return ls
}

// counter is a limiter that counts units, and inspects what it has counted.
type counter struct {
	kind    records.Kind
	add     func(units int64) error
	inspect func() (key string, usages []records.Usage, err error)
}

// counters returns a limiter of each package.
func counters(t *testing.T, texts []string, now func() time.Time) []counter {
	t.Helper()
	conn, name, ls := window.On(redistest.Client(t)), redistest.Key(t), limits(t, texts)
	w, err := window.New(conn, window.Config{Name: name, Limits: ls, Now: now, CountDenied: true, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	a, err := ar1.New(conn, ar1.Config{Name: name, Limits: mostly(ls), Now: now, CountDenied: true, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	p, err := pace.New(conn, pace.Config{Name: name, Limits: ls, Now: now, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	return []counter{
		{records.Window, func(n int64) error { _, err := w.AllowN(ctx, "e", n); return err }, func() (string, []records.Usage, error) {
			got, err := w.Inspect(ctx, "e")
			return got.Key, usages(append(got.Limits, got.Others...)), err
		}},
		{records.AR1, func(n int64) error { _, err := a.AllowN(ctx, "e", n); return err }, func() (string, []records.Usage, error) {
			got, err := a.Inspect(ctx, "e")
			var us []records.Usage
			for _, l := range append(got.Limits, got.Others...) {
				us = append(us, records.Usage{Per: l.Limit.Per, Used: l.Level})
			}
			return got.Key, us, err
		}},
		{records.Pace, func(n int64) error { _, err := p.ReserveN(ctx, "e", n); return err }, func() (string, []records.Usage, error) {
			got, err := p.Inspect(ctx, "e")
			return got.Key, usages(append(got.Limits, got.Others...)), err
		}},
	}
}

// mostly returns those limits that package ar1 supports.
func mostly(ls []window.Limit) (out []window.Limit) {
	for _, l := range ls {
		l.Max = min(l.Max, 10_000_000)
		out = append(out, l)
	}
	return out
}

func usages(states []window.LimitState) (us []records.Usage) {
	for _, l := range states {
		us = append(us, records.Usage{Per: l.Limit.Per, Used: float64(l.Used)})
	}
	return us
}

// TestReadAsScript checks that Read agrees with the scripts after each of many attempts, with a
// clock that sometimes steps back.
func TestReadAsScript(t *testing.T) {
	client, r := redistest.Client(t), rand.New(rand.NewPCG(1, 2))
	for i, texts := range sets {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			now := time.UnixMilli(1_700_000_000_000).UTC()
			for _, c := range counters(t, texts, func() time.Time { return now }) {
				for range 60 {
					now = now.Add(time.Duration(r.IntN(4000*(1+r.IntN(30)*r.IntN(30)))-500) * time.Millisecond)
					_ = c.add(1 + r.Int64N(1+r.Int64N(limits(t, texts)[0].Max))) // more units than Max, or a turn too far ahead, cause an error
					key, want, err := c.inspect()
					if err != nil {
						t.Fatal(err)
					}
					value, _ := client.Do(t.Context(), client.B().Get().Key(key).Build()).ToString()
					got, ok := records.Read(c.kind, value, now)
					if value != "" && !ok {
						t.Fatalf("%v: %q is not a record", c.kind, value)
					}
					checkUsages(t, c.kind, got.Usages, want)
				}
			}
		})
	}
}

// checkUsages compares usages by their Per. A record may omit a window that counts no units.
func checkUsages(t *testing.T, kind records.Kind, got, want []records.Usage) {
	t.Helper()
	counted := map[time.Duration]float64{}
	for _, u := range got {
		counted[u.Per] = u.Used
	}
	for _, u := range want {
		if math.Abs(counted[u.Per]-u.Used) > 1e-6*max(1, u.Used) {
			t.Errorf("%v: %v in %v, not %v", kind, counted[u.Per], u.Per, u.Used)
		}
	}
	for per := range counted {
		if !slices.ContainsFunc(want, func(u records.Usage) bool { return u.Per == per }) {
			t.Errorf("%v: %v in %v, of which the script knows nothing", kind, counted[per], per)
		}
	}
}

// FuzzRead checks that Read rejects truncated records and records of other kinds, and that it never
// panics.
func FuzzRead(f *testing.F) {
	f.Add("", byte('w'))
	f.Add("hello", byte('a'))
	f.Add("\x81\x01\x8b\xcf\xe5\x68\x00\x00\x00\x00\x36\xee\x80", byte('w'))
	f.Add("\xa1\x06\x0a\x24\x18\x1e\x40\x00\x00\x36\xee\x80\x3f\xf0\x00\x00\x00\x00\x00\x00", byte('a'))
	f.Add("\xf8\x01\x01\x8b\xcf\xe5\x68\x00\x01\x8b\xcf\xe5\x68\x00\x00\x00\x00\x36\xee\x80", byte('r'))
	f.Fuzz(func(t *testing.T, text string, letter byte) {
		now := time.UnixMilli(1_700_000_000_000)
		r, ok := records.Read(records.Kind(letter), text, now)
		if !ok {
			return
		}
		for _, u := range r.Usages {
			if u.Used < 0 || u.Per <= 0 {
				t.Errorf("%q: %+v", text, u)
			}
		}
		if _, ok := records.Read(records.Kind(letter), text[:len(text)-1], now); ok {
			t.Errorf("%q is a record even without its last byte", text)
		}
		if _, ok := records.Read(records.Kind(letter), text+"x", now); ok {
			t.Errorf("%q is a record even with another byte", text)
		}
	})
}
