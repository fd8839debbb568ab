package window_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestBadAttempts checks the errors of attempts that can never be allowed.
func TestBadAttempts(t *testing.T) {
	both(t, limits("5/1m", "9/1h"), func(b bench) {
		ctx := b.Context()
		_, empty := b.Allow(ctx, "")
		_, free := b.AllowN(ctx, "e", 0)
		_, none := b.AllowUpTo(ctx, "e", 0)
		_, negative := b.PeekN(ctx, "e", -1)
		_, over := b.WaitN(ctx, "e", 6)
		for _, test := range []struct {
			err, is error
			says    string
		}{
			{empty, window.ErrEmptyEvent, "name its subject"},
			{b.Refund(ctx, "", window.Decision{Counted: 1}), window.ErrEmptyEvent, "empty"},
			{b.Reset(ctx, ""), window.ErrEmptyEvent, "empty"},
			{free, window.ErrInvalidCost, "not 0"},
			{none, window.ErrInvalidCost, "not 0"},
			{negative, window.ErrInvalidCost, "not -1"},
			{over, window.ErrExceedsLimit, "6 units under 5/1m"},
		} {
			if !errors.Is(test.err, test.is) || !strings.Contains(test.err.Error(), test.says) || !strings.Contains(test.err.Error(), "limiter \"") {
				b.Errorf("%v is not %v, or does not say %q and the limiter", test.err, test.is, test.says)
			}
		}
		if used := b.inspect("e").Limits[0].Used; used != 0 {
			b.Errorf("bad attempts counted %d units", used)
		}
	})
}

// TestZeroLimiter checks that each method of a nil or zero limiter panics with the reason.
func TestZeroLimiter(t *testing.T) {
	for name, use := range map[string]func(l *window.Limiter){
		"Allow":   func(l *window.Limiter) { _, _ = l.Allow(t.Context(), "e") },
		"AllowN":  func(l *window.Limiter) { _, _ = l.AllowN(t.Context(), "e", 2) },
		"Peek":    func(l *window.Limiter) { _, _ = l.Peek(t.Context(), "e") },
		"Wait":    func(l *window.Limiter) { _, _ = l.Wait(t.Context(), "e") },
		"Refund":  func(l *window.Limiter) { _ = l.Refund(t.Context(), "e", window.Decision{}) },
		"Reset":   func(l *window.Limiter) { _ = l.Reset(t.Context(), "e") },
		"Inspect": func(l *window.Limiter) { _, _ = l.Inspect(t.Context(), "e") },
	} {
		for _, l := range []*window.Limiter{nil, {}} {
			func() {
				defer func() {
					if said := recover(); said != "slidegate: this limiter is nil or zero; create one with window.New or NewLocal" {
						t.Errorf("%s: %v", name, said)
					}
				}()
				use(l)
			}()
		}
	}
}

// TestClockOutOfRange checks that a clock outside 1970 to 6429 is an error.
func TestClockOutOfRange(t *testing.T) {
	both(t, limits("5/1m"), func(b bench) {
		for _, at := range []time.Time{time.UnixMilli(-1), {}, time.UnixMilli(1 << 47)} {
			b.clock.set(at)
			if _, err := b.Allow(b.Context(), "e"); err == nil || !strings.Contains(err.Error(), "between 1970 and 6429") {
				b.Errorf("at %v: %v", at, err)
			}
		}
		b.clock.set(time.UnixMilli(1<<47 - 1))
		b.allow("e", 5)
		if d := b.allow("e", 1); d.Allowed || d.RetryAfter != time.Minute {
			b.Errorf("in 6429: %+v", d)
		}
		b.clock.set(time.UnixMilli(0))
		if d := b.allow("f", 5); !d.Allowed || b.allow("f", 1).Allowed {
			b.Errorf("in 1970: %+v", d)
		}
	})
}

// TestForeignValues stores other values where a record should be. The error of each verb must name
// the key, and the value must stay unchanged. The test of the same name in lua has more values.
func TestForeignValues(t *testing.T) {
	client := redistest.Client(t)
	l := must(window.New(window.On(client), window.Config{Name: redistest.Key(t), Limits: parsed("5/1m", "9/1h"), Timeout: time.Minute}))
	b := bench{T: t, Limiter: l, redis: client}
	text, list := key(t, l, "text"), key(t, l, "list")
	do(t, client, "SET", text, "hello")
	do(t, client, "RPUSH", list, "hello")
	b.refuses("text", text)
	b.refuses("list", list)
}

// refuses checks that the error of each verb names the key, and that nothing changes.
func (b bench) refuses(event, key string) {
	b.Helper()
	before := redistest.Stored(b.T, b.redis, key)
	_, err1 := b.Allow(b.Context(), event)
	_, err2 := b.Peek(b.Context(), event)
	_, err3 := b.Inspect(b.Context(), event)
	err4 := b.Refund(b.Context(), event, window.Decision{Counted: 1, At: time.Now()})
	for i, err := range []error{err1, err2, err3, err4, b.Reset(b.Context(), event)} {
		if err == nil || !strings.Contains(err.Error(), key) || errors.Is(err, window.ErrUncertain) || errors.Is(err, window.ErrOutage) {
			b.Errorf("%q: verb %d: %v", event, i, err)
		}
	}
	if after := redistest.Stored(b.T, b.redis, key); after != before {
		b.Errorf("%s became %s", before, after)
	}
}

// FuzzForeignValueAllowsNothing stores arbitrary bytes, and then makes an attempt. If the attempt
// fails, its error must name the key, and nothing may change. If it is allowed, it must respect the
// limits.
func FuzzForeignValueAllowsNothing(f *testing.F) {
	client, name := redistest.Client(f), redistest.Key(f)
	l := must(window.New(window.On(client), window.Config{Name: name, Limits: parsed("5/5s", "9/1h", "200/1d"), Timeout: time.Minute}))
	for _, n := range []int64{1, 2, 5} {
		must(l.AllowN(context.Background(), "seed", n))
		key := must(l.Inspect(context.Background(), "seed")).Key
		f.Add(must(client.Do(context.Background(), client.B().Get().Key(key).Build()).AsBytes()))
	}
	f.Add([]byte("\x81"))
	f.Add([]byte("\xa2" + strings.Repeat("\x00", 20)))
	f.Fuzz(func(t *testing.T, value []byte) {
		key := name + ":{fuzz}:w"
		client.Do(t.Context(), client.B().Set().Key(key).Value(string(value)).Build())
		before := redistest.Stored(t, client, key)
		d, err := l.Allow(t.Context(), "fuzz")
		if err != nil {
			if !strings.Contains(err.Error(), key) || redistest.Stored(t, client, key) != before {
				t.Fatalf("%v, and %s became %s", err, before, redistest.Stored(t, client, key))
			}
			return
		}
		for _, u := range d.Usage {
			if d.Allowed && u.Used > u.Limit.Max {
				t.Fatalf("allowed, although %d are used of %v", u.Used, u.Limit)
			}
		}
	})
}

// FuzzEventsNeverShareAKey checks that different names and events have different keys.
func FuzzEventsNeverShareAKey(f *testing.F) {
	for i, event := range hostile {
		f.Add("login", event[:min(len(event), 1000)], hostile[(i+1)%len(hostile)][:1], []byte(nil))
	}
	f.Add("login", "x", "y", []byte("sixteen bytes..."))
	f.Add("a{b", "x", "y", []byte(nil))
	f.Fuzz(func(t *testing.T, name, event, other string, secret []byte) {
		if len(secret) < 16 {
			secret = nil
		}
		l, err := window.NewLocal(window.Config{Name: name, Limits: parsed("1/1h"), Secret: secret})
		if err != nil {
			if !strings.Contains(err.Error(), "name") {
				t.Fatalf("name %q: %v", name, err)
			}
			return
		}
		if event == "" || other == "" {
			return
		}
		a, b := key(t, l, event), key(t, l, other)
		if (a == b) != (event == other) {
			t.Fatalf("%q has %s, %q has %s", event, a, other, b)
		}
		wellFormed(t, name, a)
		if d := must(l.Allow(t.Context(), event)); !d.Allowed {
			t.Fatalf("%q is counted before its first attempt", event)
		}
		if d := must(l.Allow(t.Context(), other)); d.Allowed != (event != other) {
			t.Fatalf("%q and %q share a count, or %q has two", event, other, event)
		}
	})
}

// TestEviction checks that volatile-lru evicts limiters first: every key of a limiter has an
// expiry, and the keys that fill the memory have none.
func TestEviction(t *testing.T) {
	events := redistest.UnlessShort(1000, 200)
	for policy, want := range map[string]int{"noeviction": 0, "volatile-lru": events} {
		client := redistest.Start(t, "--maxmemory", "20mb", "--maxmemory-policy", policy).Client(t)
		l := must(window.New(window.On(client), window.Config{Name: "evicted", Limits: parsed("1/1d"), Timeout: time.Minute}))
		if n := countAllowed(t, l, events); n != events {
			t.Fatalf("%s: %d of %d new events are allowed", policy, n, events)
		}
		fill(t, client, policy)
		client.Do(t.Context(), client.B().Arbitrary("CONFIG", "SET", "maxmemory", "0").Build())
		n := countAllowed(t, l, events)
		t.Logf("%s: %d of %d used-up events are allowed again", policy, n, events)
		if n != want {
			t.Errorf("%s: %d, not %d", policy, n, want)
		}
	}
}

// fill writes keys without an expiry until the server rejects them and evicts nothing more. Redis
// 8.6 rejects some writes even while there are keys with an expiry, because it finds such keys by
// sampling.
func fill(t *testing.T, client rueidis.Client, policy string) {
	t.Helper()
	for i, done := 0, false; !done; i++ {
		if client.Do(t.Context(), client.B().Set().Key(strconv.Itoa(i)).Value(strings.Repeat("x", 10_000)).Build()).Error() == nil {
			continue
		}
		keyspace := must(client.Do(t.Context(), client.B().Info().Section("keyspace").Build()).ToString())
		done = policy == "noeviction" || strings.Contains(keyspace, ",expires=0,")
	}
}

// countAllowed attempts the given number of events, and returns how many are allowed.
func countAllowed(t *testing.T, l *window.Limiter, events int) (n int) {
	t.Helper()
	for i := range events {
		if must(l.Allow(t.Context(), strconv.Itoa(i))).Allowed {
			n++
		}
	}
	return n
}

// TestFIPS runs this binary again in a mode in which SHA-1 is forbidden.
func TestFIPS(t *testing.T) {
	if os.Getenv("GODEBUG") == "fips140=only" {
		cfg := window.Config{Name: redistest.Key(t), Limits: parsed("1/1h"), Secret: []byte("sixteen bytes..."), Timeout: time.Minute}
		l := must(window.New(window.On(redistest.Client(t)), cfg))
		everyVerb(t, l, "e")
		cfg.Secret = []byte("short")
		if _, err := window.NewLocal(cfg); err == nil || !strings.Contains(err.Error(), "at least 16") {
			t.Errorf("a short secret: %v", err)
		}
		return
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFIPS$", "-test.v")
	again.Env = append(os.Environ(), "GODEBUG=fips140=only")
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestFIPS") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestTooManyDenials counts denials up to 2^53, the largest integer that a record can hold.
func TestTooManyDenials(t *testing.T) {
	most := int64(1 << 53)
	both(t, window.Config{Limits: []window.Limit{window.PerHour(most), window.PerDay(most)}, CountDenied: true}, func(b bench) {
		b.allow("e", most-1)
		if d := b.allow("e", 1); !d.Allowed {
			b.Fatalf("%+v", d)
		}
		before := b.stored("e")
		if _, err := b.Allow(b.Context(), "e"); err == nil || !strings.Contains(err.Error(), "2^53") || b.stored("e") != before {
			b.Fatalf("one more: %v", err)
		}
	})
}

// TestEdgeOfIntegers decides under a Max of 2^53, where a sum of doubles can be off by one, and
// refunds more units than can be counted.
func TestEdgeOfIntegers(t *testing.T) {
	most := int64(1 << 53)
	both(t, window.Config{Limits: []window.Limit{window.PerHour(most)}}, func(b bench) {
		b.allow("e", 1)
		if d := b.peek("e", most); d.Allowed || d.RetryAfter != time.Hour {
			b.Errorf("%+v", d)
		}
		b.clock.pass(10 * time.Minute)
		if d := b.allow("e", most-1); !d.Allowed || d.Remaining != 0 || d.Usage[0].RetryAfter != time.Hour {
			b.Errorf("%+v", d)
		}
		b.give("e", window.Decision{Counted: 1<<63 - 1, At: b.clock.now()})
		if used := b.inspect("e").Limits[0].Used; used != 1 {
			b.Errorf("%d units are left", used)
		}
	})
}
