package limiter

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// onFakeTime runs a test, with fake time, of a cache for two denials.
func onFakeTime(t *testing.T, test func(t *testing.T, c *denialCache)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newDenialCache(2)) })
}

// pass lets the time d pass.
func pass(d time.Duration) { <-time.After(d) }

var (
	one = "5 in 60 s" // the limits of minute

	minute = denial{units: 1, limits: one, at: 7, rows: []int64{5, 60_000, 60_000, 5, 0, 3_600_000}} // a denial with a wait of a minute
)

// deny lets the request be denied immediately.
func deny(c *denialCache, key string) {
	pass(1)
	c.remember(key, minute, time.Now())
}

// wantDenied checks whether a request for one unit of key is known to be denied.
func wantDenied(t *testing.T, c *denialCache, key string, want bool) {
	t.Helper()
	if _, denied := c.lookup(key, 1, one, time.Now()); denied != want {
		t.Errorf("%s is known to be denied: %v", key, denied)
	}
}

// TestDenialIsRemembered checks that a denial is remembered until its wait is over, but for at most
// a second. The time counts from when the request was sent.
func TestDenialIsRemembered(t *testing.T) {
	for wait, remembered := range map[int64]time.Duration{
		60_000: time.Second, 1 << 62: time.Second, 1001: time.Second, 999: 999 * time.Millisecond, 301: 301 * time.Millisecond, 300: 0, 0: 0,
	} {
		onFakeTime(t, func(t *testing.T, c *denialCache) {
			pass(time.Hour)
			sent, rows := time.Now(), []int64{5, wait, 60_000, 5, 0, 3_600_000}
			pass(300 * time.Millisecond)
			c.remember("k", denial{units: 1, limits: one, at: 7, rows: rows}, sent)
			if remembered == 0 {
				wantDenied(t, c, "k", false)
				return
			}
			pass(remembered - 300*time.Millisecond - time.Nanosecond)
			got, denied := c.lookup("k", 1, one, time.Now())
			age := time.Since(got.replied)
			if !denied || age != remembered-300*time.Millisecond-time.Nanosecond || got.at != 7 || fmt.Sprint(got.rows) != fmt.Sprint(rows) {
				t.Errorf("a wait of %d ms: %+v, %v, %v", wait, got, age, denied)
			}
			pass(time.Nanosecond)
			wantDenied(t, c, "k", false)
		})
	}
}

// TestOtherRequests checks that a denial is repeated only for equal requests.
func TestOtherRequests(t *testing.T) {
	onFakeTime(t, func(t *testing.T, c *denialCache) {
		deny(c, "k")
		for _, other := range []denial{{units: 2, limits: one}, {units: 1, limits: "5 in 61 s"}} {
			if _, denied := c.lookup("k", other.units, other.limits, time.Now()); denied {
				t.Errorf("%+v is denied", other)
			}
		}
		wantDenied(t, c, "other", false)
		wantDenied(t, c, "k", true)
		c.forget("k")
		wantDenied(t, c, "k", false)
	})
}

// TestCapacity checks that a cache of two denials holds two.
func TestCapacity(t *testing.T) {
	onFakeTime(t, func(t *testing.T, c *denialCache) {
		for i := range 100 {
			deny(c, fmt.Sprint(i))
			wantDenied(t, c, fmt.Sprint(i), true)
			if len(c.denials) > 2 {
				t.Fatalf("%d are kept", len(c.denials))
			}
		}
	})
}

// TestLateDenials checks that a denial is remembered only if its request was sent after the last
// forget. In each history, time advances with each step: s sends the request, f forgets the key, and
// r receives the denial.
func TestLateDenials(t *testing.T) {
	for history, want := range map[string]bool{
		"sr": true, "fsr": true, "sfsr": true, "srfsr": true,
		"sfr": false, "srf": false, "fsfr": false, "sfrr": false,
	} {
		onFakeTime(t, func(t *testing.T, c *denialCache) {
			var sent time.Time
			for _, step := range history {
				pass(time.Millisecond)
				switch step {
				case 's':
					sent = time.Now()
				case 'f':
					c.forget("k")
				case 'r':
					c.remember("k", minute, sent)
				}
			}
			if _, denied := c.lookup("k", 1, one, time.Now()); denied != want {
				t.Errorf("%s: known to be denied: %v", history, denied)
			}
		})
	}
}

// TestOtherKeysAreForgotten checks that forget of other keys takes a bounded amount of memory, and
// keeps few denials out of the cache.
func TestOtherKeysAreForgotten(t *testing.T) {
	onFakeTime(t, func(t *testing.T, c *denialCache) {
		remembered := 0
		for i := range 10_000 {
			pass(time.Millisecond)
			sent := time.Now()
			c.forget(fmt.Sprint("other", i))
			c.remember("k", minute, sent)
			if _, denied := c.lookup("k", 1, one, time.Now()); denied {
				remembered++
			}
			delete(c.denials, "k")
		}
		if remembered < 9800 || len(c.forgotten) > denialSlots {
			t.Errorf("remembered %d of 10,000 denials; %d slots", remembered, len(c.forgotten))
		}
	})
}
