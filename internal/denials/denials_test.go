package denials

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A redis simulates a client that caches values.
type redis struct {
	mu     sync.Mutex
	value  string
	err    error
	loses  bool          // the client caches nothing
	delay  time.Duration // the duration of each get
	gets   int
	copies map[string]string // the copies that the client has cached
}

func (r *redis) get(ctx context.Context, key string, _, _ time.Duration) (string, bool, error) {
	select {
	case <-time.After(r.delay):
	case <-ctx.Done():
		return "", false, fmt.Errorf("%w: %w", ErrLeft, ctx.Err())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gets++
	if kept, found := r.copies[key]; found {
		return kept, true, nil
	}
	value := strings.Clone(r.value)
	if !r.loses && r.err == nil {
		r.copies[key] = value
	}
	return value, false, r.err
}

// set changes the value of all keys, and notifies the client.
func (r *redis) set(value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value, r.copies = value, map[string]string{}
}

// asked returns the number of gets since the last call.
func (r *redis) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.gets
	r.gets = 0
	return n
}

// onFakeTime runs a test, with fake time, of a cache for two denials.
func onFakeTime(t *testing.T, test func(t *testing.T, c *Cache, r *redis)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &redis{value: "full", copies: map[string]string{}}
		test(t, New(2, r.get, func(context.Context) { t.Error("the cache is off") }), r)
	})
}

// pass lets the time d pass.
func pass(d time.Duration) { <-time.After(d) }

// minute is a denial with a wait of a minute.
var minute = Reply{At: 7, Rows: []int64{5, 60_000, 60_000, 5, 0, 3_600_000}}

// mustLookup calls Lookup, and fails the test on an error.
func mustLookup(t *testing.T, c *Cache, key string) Result {
	t.Helper()
	result, err := c.Lookup(t.Context(), key, Request{Units: 1}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// deny calls Lookup, and then remembers that the request was denied.
func deny(t *testing.T, c *Cache, key string) {
	t.Helper()
	if result := mustLookup(t, c, key); result.Denied {
		t.Fatalf("%s is already known to be denied", key)
	} else {
		c.Remember(result, time.Now(), false, minute)
	}
}

// learn makes the cache remember a denial of key together with the key's value.
func learn(t *testing.T, c *Cache, key string) {
	t.Helper()
	deny(t, c, key) // without a value, because the key was not in the cache
	deny(t, c, key)
}

// wantDenied checks whether key is known to be denied.
func wantDenied(t *testing.T, c *Cache, key string, want bool) {
	t.Helper()
	if result := mustLookup(t, c, key); result.Denied != want {
		t.Errorf("%s is known to be denied: %v", key, result.Denied)
	}
}

// TestDenialIsRemembered checks that from the third request on, no script call is made until the
// wait is over.
func TestDenialIsRemembered(t *testing.T) {
	onFakeTime(t, func(t *testing.T, c *Cache, r *redis) {
		deny(t, c, "k")
		if r.asked() != 0 {
			t.Error("an unknown key was looked up")
		}
		deny(t, c, "k")
		pass(10 * time.Second)
		result := mustLookup(t, c, "k")
		if !result.Denied || result.Age != 10*time.Second || fmt.Sprint(result.Reply) != fmt.Sprint(minute) {
			t.Errorf("%+v", result)
		}
		pass(50*time.Second - time.Nanosecond)
		wantDenied(t, c, "k", true)
		pass(time.Nanosecond)
		wantDenied(t, c, "k", false)
	})
}

// TestWaitCountsFromTheRequest checks that the wait starts when the request is sent, not when its
// reply arrives.
func TestWaitCountsFromTheRequest(t *testing.T) {
	onFakeTime(t, func(t *testing.T, c *Cache, _ *redis) {
		deny(t, c, "k")
		result, sent := mustLookup(t, c, "k"), time.Now()
		pass(time.Second)
		c.Remember(result, sent, false, minute)
		pass(59*time.Second - time.Nanosecond)
		wantDenied(t, c, "k", true)
		pass(time.Nanosecond)
		wantDenied(t, c, "k", false)
	})
}

// TestChangeEndsDenial checks that a change of the value, or a new copy of the same value, ends a
// denial.
func TestChangeEndsDenial(t *testing.T) {
	for _, value := range []string{"less", "full", ""} {
		onFakeTime(t, func(t *testing.T, c *Cache, r *redis) {
			learn(t, c, "k")
			wantDenied(t, c, "k", true)
			r.set(value)
			pass(time.Millisecond)
			wantDenied(t, c, "k", false)
		})
	}
}

// TestMissIsNoDenial checks that a value that the client had to fetch from Redis does not confirm a
// denial, even if it is the same copy.
func TestMissIsNoDenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hit := true
		c := New(2, func(context.Context, string, time.Duration, time.Duration) (string, bool, error) {
			return "full", hit, nil
		}, nil)
		learn(t, c, "k")
		wantDenied(t, c, "k", true)
		hit = false
		c.tracks.Store(true)
		pass(time.Millisecond)
		wantDenied(t, c, "k", false)
	})
}

// TestOtherUnits checks that a denial of one unit is not repeated for a request for two.
func TestOtherUnits(t *testing.T) {
	onFakeTime(t, func(t *testing.T, c *Cache, _ *redis) {
		learn(t, c, "k")
		if result, err := c.Lookup(t.Context(), "k", Request{Units: 2}, time.Second); err != nil || result.Denied {
			t.Errorf("%+v, %v", result, err)
		}
	})
}

// TestForget checks that Forget drops a denial.
func TestForget(t *testing.T) {
	onFakeTime(t, func(t *testing.T, c *Cache, _ *redis) {
		learn(t, c, "k")
		c.Forget("k")
		wantDenied(t, c, "k", false)
	})
}

// TestAllowedAttempts checks that an allowed attempt for a key in the cache is stored with its
// wait, so that the next Lookup gets the key's value, and that other allowed attempts are not
// stored.
func TestAllowedAttempts(t *testing.T) {
	onFakeTime(t, func(t *testing.T, c *Cache, r *redis) {
		c.Remember(mustLookup(t, c, "new"), time.Now(), true, minute)
		learn(t, c, "k")
		r.set("free")
		pass(time.Millisecond)
		c.Remember(mustLookup(t, c, "k"), time.Now(), true, minute)
		r.asked()
		wantDenied(t, c, "new", false)
		if r.asked() != 0 {
			t.Error("an event that was never denied was looked up")
		}
		wantDenied(t, c, "k", false)
		if r.asked() == 0 {
			t.Error("an event that was denied was not looked up")
		}
		c.Remember(mustLookup(t, c, "k"), time.Now(), true, Reply{Rows: []int64{1, 0, 60_000}})
		if len(c.denials) != 0 {
			t.Error("a key with room was kept")
		}
	})
}

// TestLease checks that callers that arrive within 0.1 ms share the result of a fetch.
func TestLease(t *testing.T) {
	onFakeTime(t, func(t *testing.T, c *Cache, r *redis) {
		learn(t, c, "k")
		pass(time.Second)
		wantDenied(t, c, "k", true)
		r.asked()
		for _, want := range []int{0, 0, 1, 0} { // after 0, 50, 100 and 150 µs
			wantDenied(t, c, "k", true)
			if n := r.asked(); n != want {
				t.Errorf("%d fetches, want %d", n, want)
			}
			pass(lease / 2)
		}
	})
}

// TestCallersShareAFetch checks that callers that arrive at the same time share one fetch.
func TestCallersShareAFetch(t *testing.T) {
	onFakeTime(t, func(t *testing.T, c *Cache, r *redis) {
		learn(t, c, "k")
		r.asked()
		r.delay = time.Second
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() { wantDenied(t, c, "k", true) })
		}
		callers.Wait()
		if n := r.asked(); n != 1 {
			t.Errorf("%d fetches", n)
		}
	})
}

// TestLeavers checks that the caller that fetches may leave, and that callers that wait for the
// fetch do so for at most half of their time and then send their requests.
func TestLeavers(t *testing.T) {
	onFakeTime(t, func(t *testing.T, c *Cache, r *redis) {
		learn(t, c, "k")
		r.delay = time.Minute
		var callers sync.WaitGroup
		callFor := func(d, took time.Duration, want error) {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				began := time.Now()
				result, err := c.Lookup(ctx, "k", Request{Units: 1}, time.Hour)
				if result.Denied || !errors.Is(err, want) {
					t.Errorf("%v: %+v, %v", d, result, err)
				}
				if got := time.Since(began); got != took {
					t.Errorf("%v: took %v", d, got)
				}
			})
			synctest.Wait()
		}
		callFor(2*time.Second, 2*time.Second, context.DeadlineExceeded) // the error comes from this caller's context, so other callers do not get it
		callFor(1*time.Second, time.Second/2, nil)
		callFor(time.Minute, 2*time.Second, nil)
		callers.Wait()
	})
}

// TestPanicFreesOthers checks that if the caller that fetches panics, the callers that wait for the
// fetch send their requests.
func TestPanicFreesOthers(t *testing.T) {
	onFakeTime(t, func(t *testing.T, c *Cache, _ *redis) {
		learn(t, c, "k")
		get := c.get
		c.get = func(context.Context, string, time.Duration, time.Duration) (string, bool, error) {
			pass(time.Second)
			panic("in get")
		}
		go func() {
			defer func() { _ = recover() }()
			_, _ = c.Lookup(t.Context(), "k", Request{Units: 1}, time.Minute)
		}()
		synctest.Wait()
		wantDenied(t, c, "k", false)
		c.get = get
		learn(t, c, "k")
		wantDenied(t, c, "k", true)
	})
}

// TestErrorIsReturned checks that an error is returned, and that the denial is dropped.
func TestErrorIsReturned(t *testing.T) {
	onFakeTime(t, func(t *testing.T, c *Cache, r *redis) {
		learn(t, c, "k")
		r.set("")
		r.err = errors.New("no connection")
		if _, err := c.Lookup(t.Context(), "k", Request{Units: 1}, time.Second); !errors.Is(err, r.err) {
			t.Error(err)
		}
		wantDenied(t, c, "k", false)
	})
}

// TestCapacity checks that a cache of two denials holds two.
func TestCapacity(t *testing.T) {
	onFakeTime(t, func(t *testing.T, c *Cache, _ *redis) {
		for i := range 100 {
			learn(t, c, fmt.Sprint(i))
			wantDenied(t, c, fmt.Sprint(i), true)
			if len(c.denials) > 2 {
				t.Fatalf("%d are kept", len(c.denials))
			}
		}
	})
}

// TestOff checks that the cache detects a client that does not cache values, and is not used after
// that.
func TestOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		off := 0
		r := &redis{value: "full", loses: true, copies: map[string]string{}}
		c := New(2, r.get, func(context.Context) { off++ })
		for range 10 {
			deny(t, c, "k")
		}
		if n := r.asked(); off != 1 || n != 2*maxMisses {
			t.Errorf("reported %d times, after %d gets", off, n)
		}
	})
}

// TestTimeoutOfTwoGets checks that the timeout of the second get is what remains of the total, and
// at least a nanosecond. Without a Timeout, neither get has a timeout.
func TestTimeoutOfTwoGets(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{time.Minute: 59 * time.Second, time.Millisecond: 1, -1: -1} {
		synctest.Test(t, func(t *testing.T) {
			var got []time.Duration
			c := New(2, func(_ context.Context, _ string, timeout, _ time.Duration) (string, bool, error) {
				got = append(got, timeout)
				pass(time.Second)
				return "full", false, nil
			}, nil)
			deny(t, c, "k")
			if _, err := c.Lookup(t.Context(), "k", Request{Units: 1}, timeout); err != nil || len(got) != 2 || got[0] != timeout || got[1] != want {
				t.Errorf("%v: %v, %v", timeout, got, err)
			}
		})
	}
}

// TestLongWaits checks that a denial with a wait of centuries, which is too long for a Duration, is
// remembered for a year.
func TestLongWaits(t *testing.T) {
	onFakeTime(t, func(t *testing.T, c *Cache, _ *redis) {
		for range 2 {
			c.Remember(mustLookup(t, c, "k"), time.Now(), false, Reply{Rows: []int64{5, 1 << 62, 1 << 62}})
		}
		wantDenied(t, c, "k", true)
		pass(longest*time.Millisecond - 1)
		wantDenied(t, c, "k", true)
		pass(time.Nanosecond)
		wantDenied(t, c, "k", false)
	})
}
