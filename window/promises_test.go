package window_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// Each guarantee in docs/guarantees.md has a test of the same name in this file, which tries to
// break it directly. TestHistories checks all guarantees at once, against an exact log.

// TestBounded attacks at the edges of windows and buckets, with any cost, and with refunds or a
// clock that steps back. It logs each attempt at the time at which the limit counted it: that of
// the clock, or that of its newest bucket if that is later.
func TestBounded(t *testing.T) {
	t.Parallel()
	both(t, limits("3/1s", "9/10s@3s", "80/1m"), func(b bench) {
		for seed := range redistest.UnlessShort[uint64](40, 10) {
			rng, event := rand.New(rand.NewPCG(seed, 1)), fmt.Sprint(seed)
			logs := make([][]allowedAttempt, 3)
			b.clock.set(noon)
			for range 150 {
				edges := []int64{0, 1, 333, 334, 999, 1000, 3000, 9999}
				b.clock.pass(ms(edges[rng.IntN(len(edges))]))
				if seed%2 == 0 && rng.IntN(10) == 0 {
					b.clock.pass(-time.Duration(rng.IntN(1000)) * time.Millisecond)
				}
				d := b.allow(event, 1+rng.Int64N(3))
				if d.Allowed && seed%2 == 1 && rng.IntN(8) == 0 {
					b.give(event, d)
				} else if d.Allowed {
					for i, u := range d.Usage {
						logs[i] = append(logs[i], allowedAttempt{b.clock.now().Add(u.ResetAfter - u.Limit.Per), d.Counted})
					}
				}
			}
			for i, l := range parsed("3/1s", "9/10s@3s", "80/1m") {
				holds(b.T, l, logs[i])
			}
		}
	})
}

// TestBoundedUnderLoad lets 64 goroutines keep asking about one event, or about a few, on the real
// clock. On Redis, one script call decides several events.
func TestBoundedUnderLoad(t *testing.T) {
	cfg := window.Config{Name: redistest.Key(t), Limits: parsed("5/20ms", "40/1s@50ms", "200/1h"), Timeout: time.Minute}
	calls := &redistest.Calls{}
	onRedis := must(window.New(window.On(redistest.NewClient(t, calls.Count)), cfg))
	faulttest.AwaitGroups(t, onRedis, calls)
	before := calls.Several.Load()
	for name, l := range map[string]*window.Limiter{"redis": onRedis, "local": must(window.NewLocal(cfg))} {
		for _, events := range [][]string{{"hot"}, many(100)} {
			t.Run(fmt.Sprint(name, ", events: ", len(events)), func(t *testing.T) {
				for event, log := range attemptAtOnce(t, l, 64, 150, events) {
					if len(log) < 5 {
						t.Fatalf("only %d of %s were allowed", len(log), event)
					}
					for _, limit := range cfg.Limits {
						holds(t, limit, log)
					}
				}
			})
		}
	}
	if calls.Several.Load() == before {
		t.Error("weak test: no script call is for several events")
	}
}

// attemptAtOnce lets several goroutines attempt random events at the same time, each the given
// number of times. It returns the allowed attempts for each event.
func attemptAtOnce(t *testing.T, l *window.Limiter, goroutines, times int, events []string) map[string][]allowedAttempt {
	var mu sync.Mutex
	var wg sync.WaitGroup
	logs := map[string][]allowedAttempt{}
	for range goroutines {
		wg.Go(func() {
			for range times {
				event := events[rand.IntN(len(events))]
				d, err := l.Allow(t.Context(), event)
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					mu.Lock()
					logs[event] = append(logs[event], allowedAttempt{d.At, d.Counted})
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return logs
}

// TestPrompt checks when units are forgotten: not before Per, not after Per + Resolution, and
// exactly after Per if they are alone in their bucket.
func TestPrompt(t *testing.T) {
	t.Parallel()
	coarse := limit("1000/10s@700ms")
	both(t, window.Config{Limits: []window.Limit{coarse, limit("60/3s")}}, func(b bench) {
		for seed := range redistest.UnlessShort[uint64](40, 10) {
			rng, event := rand.New(rand.NewPCG(seed, 2)), fmt.Sprint(seed)
			var log []allowedAttempt
			for range 60 {
				b.clock.pass(time.Duration(rng.IntN(900)) * time.Millisecond)
				if d := b.allow(event, 1+rng.Int64N(2)); d.Allowed {
					log = append(log, allowedAttempt{d.At, d.Counted})
				}
				b.clock.pass(time.Duration(rng.IntN(900)) * time.Millisecond)
				s := b.inspect(event)
				least, most := younger(log, s.At, 10*time.Second), younger(log, s.At, 10*time.Second+coarse.Resolution)
				if used := s.Limits[0].Used; used < least || used > most {
					b.Fatalf("%d units are counted, not %d to %d", used, least, most)
				}
				if used := s.Limits[1].Used; used != younger(log, s.At, 3*time.Second) {
					b.Fatalf("the exact limit counts %d", used)
				}
			}
			b.clock.pass(10*time.Second - b.clock.now().Sub(log[len(log)-1].at))
			if s := b.inspect(event); s.Limits[0].Used != 0 {
				b.Fatalf("counted when as old as Per: %v", s.Limits[0])
			}
		}
	})
}

// younger returns how many units were allowed less than age ago.
func younger(log []allowedAttempt, now time.Time, age time.Duration) (units int64) {
	for _, a := range log {
		if now.Sub(a.at) < age {
			units += a.units
		}
	}
	return units
}

func TestAllOrNone(t *testing.T) {
	t.Parallel()
	both(t, limits("2/1s", "7/10s", "90/1m@5s"), func(b bench) {
		rng := rand.New(rand.NewPCG(3, 3))
		for range 600 {
			b.clock.pass(time.Duration(rng.IntN(700)) * time.Millisecond)
			before, n := b.inspect("e"), 1+rng.Int64N(2)
			d := b.allow("e", n)
			after := b.inspect("e")
			for i := range after.Limits {
				if grown := after.Limits[i].Used - before.Limits[i].Used; grown != d.Counted {
					b.Fatalf("%v: %d more units, although the decision counted %d", after.Limits[i].Limit, grown, d.Counted)
				}
			}
			if fits := before.Limits[0].Remaining >= n && before.Limits[1].Remaining >= n && before.Limits[2].Remaining >= n; d.Allowed != fits {
				b.Fatalf("allowed: %v, but every limit had room: %v", d.Allowed, fits)
			}
		}
	})
}

func TestFreeDenial(t *testing.T) {
	t.Parallel()
	both(t, limits("2/1s", "7/10s", "90/1m@5s"), func(b bench) {
		rng, denials, attempts := rand.New(rand.NewPCG(4, 4)), 0, redistest.UnlessShort(600, 150)
		for range attempts {
			b.clock.pass(time.Duration(rng.IntN(400)-20) * time.Millisecond)
			before := b.stored("e")
			if !b.allow("e", 1+rng.Int64N(2)).Allowed {
				denials++
				if after := b.stored("e"); after != before {
					b.Fatalf("a denial changed %s to %s", before, after)
				}
			}
		}
		if denials < attempts/6 {
			b.Fatalf("only %d denials", denials)
		}
	})
}

// TestFreeDenialByChoice checks that with CountDenied, denied attempts count all their units in
// every limit.
func TestFreeDenialByChoice(t *testing.T) {
	both(t, window.Config{Limits: parsed("2/10s", "9/1m"), CountDenied: true}, func(b bench) {
		b.allow("e", 2)
		d := b.allow("e", 2)
		if d.Allowed || d.Counted != 2 || d.Usage[0].Used != 4 || d.Usage[1].Used != 4 || d.Remaining != 0 || d.RetryAfter != 10*time.Second {
			b.Fatalf("%+v", d)
		}
		b.clock.pass(9999 * time.Millisecond)
		if d := b.allow("e", 1); d.Allowed || d.Usage[0].Used != 5 {
			b.Fatalf("a client that keeps retrying is allowed: %+v", d)
		}
		b.give("e", d)
		if s := b.inspect("e"); s.Limits[0].Used != 3 {
			b.Fatalf("a refunded denial leaves %d units, not 3", s.Limits[0].Used)
		}
	})
}

func TestFreeLook(t *testing.T) {
	t.Parallel()
	both(t, limits("2/1s", "5/1m", "90/1h"), func(b bench) {
		look := func(event string) {
			b.Helper()
			before := b.stored(event)
			b.peek(event, 1)
			b.peek(event, 2)
			b.inspect(event)
			if after := b.stored(event); after != before {
				b.Fatalf("a read changed %s to %s", before, after)
			}
		}
		look("nobody")
		for range 12 {
			b.allow("e", 1)
			look("e")
			b.clock.pass(300 * time.Millisecond)
		}
		b.clock.pass(-30 * time.Minute) // an attempt would now repair a timestamp
		look("e")
		b.clock.pass(24 * time.Hour) // now everything is forgotten
		look("e")
	})
}

func TestExactRetry(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]window.Config{
		"exact": limits("1/700ms", "4/5s"), "coarse": limits("3/1s@400ms", "100/20s"),
		"denials count": {Limits: parsed("2/1s", "9/20s@3s"), CountDenied: true},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, cfg, func(b bench) {
				rng, denials, attempts := rand.New(rand.NewPCG(5, 5)), 0, redistest.UnlessShort(500, 150)
				for range attempts {
					b.clock.pass(time.Duration(rng.IntN(800)-60) * time.Millisecond)
					n := 1 + rng.Int64N(cfg.Limits[0].Max)
					if d := b.allow("e", n); !d.Allowed {
						denials++
						b.retries("e", n, d)
					}
				}
				if denials < attempts/5 {
					b.Fatalf("only %d denials", denials)
				}
			})
		})
	}
}

// retries checks that the request is allowed after d.RetryAfter, but not 1 ms earlier. It does the
// same for each limit alone.
func (b bench) retries(event string, n int64, d window.Decision) {
	b.Helper()
	defer b.clock.set(b.clock.now())
	b.clock.pass(d.RetryAfter)
	if again := b.peek(event, n); !again.Allowed {
		b.Fatalf("after %v it is denied: %+v", d.RetryAfter, again)
	}
	b.clock.pass(-time.Millisecond)
	if again := b.peek(event, n); again.Allowed || again.RetryAfter != time.Millisecond {
		b.Fatalf("1 ms before %v: %+v", d.RetryAfter, again)
	}
	if tight := d.Tightest(); tight.RetryAfter != d.RetryAfter {
		b.Fatalf("the tightest limit waits %v, the decision %v", tight.RetryAfter, d.RetryAfter)
	}
}

// TestOneKey runs every verb on a cluster, for events and limiters in any slot. Each pair of event
// and limiter must have exactly one key, all keys of an event must be in one slot, and no call may
// fail.
func TestOneKey(t *testing.T) {
	t.Parallel()
	client := redistest.Cluster(t)
	name := redistest.Key(t)
	slots, events := map[string]int64{}, redistest.UnlessShort(300, 100)
	for _, suffix := range []string{"a", "b"} {
		l := must(window.New(window.On(client), window.Config{Name: name + suffix, Limits: parsed("1/1m", "5/1h", "90/1d"), Timeout: time.Minute}))
		for i := range events {
			event := fmt.Sprint("event ", i)
			key := everyVerb(t, l, event)
			slot := must(client.Do(t.Context(), client.B().ClusterKeyslot().Key(key).Build()).AsInt64())
			if was, ok := slots[event]; ok && was != slot {
				t.Fatalf("%s: slots %d and %d", event, was, slot)
			}
			slots[event] = slot
		}
	}
	if keys := scan(t, client, name+"*"); len(keys) != 2*events {
		t.Fatalf("%d keys for %d records", len(keys), 2*events)
	}
}

func scan(t *testing.T, c rueidis.Client, pattern string) (keys []string) {
	t.Helper()
	for _, node := range c.Nodes() {
		for cursor := uint64(0); ; {
			page, err := node.Do(t.Context(), node.B().Scan().Cursor(cursor).Match(pattern).Count(1000).Build()).AsScanEntry()
			if err != nil {
				t.Fatal(err)
			}
			keys, cursor = append(keys, page.Elements...), page.Cursor
			if cursor == 0 {
				break
			}
		}
	}
	return keys
}

func TestAnyEvent(t *testing.T) {
	t.Parallel()
	for _, secret := range [][]byte{nil, []byte("sixteen bytes...")} {
		cfg := window.Config{Name: redistest.Key(t), Limits: parsed("1/1m", "5/1h"), Secret: secret, Timeout: time.Minute}
		remote, local := must(window.New(window.On(redistest.Cluster(t)), cfg)), must(window.NewLocal(cfg))
		keys := map[string]string{}
		for _, event := range hostile {
			key := everyVerb(t, remote, event)
			everyVerb(t, local, event)
			if other, taken := keys[key]; taken {
				t.Fatalf("%.40q and %.40q share %s", event, other, key)
			}
			keys[key] = event
			wellFormed(t, cfg.Name, key)
		}
	}
}

// TestNoTimeTravel steps the clock back by less and by more than Per.
func TestNoTimeTravel(t *testing.T) {
	t.Parallel()
	both(t, limits("2/10s", "4/1h"), func(b bench) {
		b.allow("e", 2)
		for _, back := range []time.Duration{ms(1), ms(5000), ms(9999)} {
			b.clock.set(noon.Add(-back))
			d := b.peek("e", 1)
			if d.Allowed || !d.At.Equal(noon) || d.RetryAfter != 10*time.Second+back {
				b.Fatalf("%v back: %+v", back, d)
			}
			b.retries("e", 1, d)
		}
		b.clock.set(noon.Add(-5 * time.Second))
		before := b.stored("e")
		if b.allow("e", 1); b.stored("e") != before {
			b.Fatal("a denial changed a record that needs no repair")
		}
	})
	both(t, limits("2/10s", "4/1h"), func(b bench) {
		b.allow("e", 2)
		b.clock.pass(-30 * time.Minute) // more than 10 s, less than 1 h
		d := b.allow("e", 1)
		if d.Allowed || d.RetryAfter != 20*time.Second {
			b.Fatalf("locked out for %v, not 2 x Per: %+v", d.RetryAfter, d)
		}
		if in := d.Usage[1].ResetAfter; in != 90*time.Minute {
			b.Fatalf("the hour's units are forgotten in %v, not when they were due", in)
		}
		b.retries("e", 1, d)
		b.clock.pass(5 * time.Second)
		if d := b.allow("e", 1); d.RetryAfter != 15*time.Second {
			b.Fatalf("repaired again: %+v", d)
		}
	})
	both(t, limits("1/10s", "2/1m@1m", "3/1h"), neverLockedOut)
}

// neverLockedOut moves the clock ahead and back by up to a year, and checks that an attempt is then
// allowed after RetryAfter.
func neverLockedOut(b bench) {
	for seed := range uint64(60) {
		rng, event := rand.New(rand.NewPCG(seed, 6)), fmt.Sprint(seed)
		b.clock.set(noon)
		b.allow(event, 1)
		jump := time.Duration(rng.Int64N(int64(365*24*time.Hour) >> rng.IntN(30))).Truncate(time.Millisecond)
		b.clock.pass(jump)
		b.allow(event, 1)
		b.clock.set(noon.Add(time.Duration(rng.IntN(1000)) * time.Millisecond))
		d := b.allow(event, 1)
		for _, u := range d.Usage {
			if u.RetryAfter > 2*u.Limit.Per {
				b.Fatalf("after a jump of %v: %v locks out for %v", jump, u.Limit, u.RetryAfter)
			}
		}
		if !d.Allowed {
			b.retries(event, 1, d)
		}
	}
}

// TestSelfCleaning checks on the server's clock that Redis drops the key when the last unit is
// forgotten.
func TestSelfCleaning(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t)
	l := must(window.New(window.On(client), window.Config{Name: redistest.Key(t), Limits: parsed("9/20ms", "9/60ms@7ms"), Timeout: time.Minute}))
	b := bench{T: t, Limiter: l, redis: client}
	for i := range redistest.UnlessShort(20, 5) {
		event := fmt.Sprint(i)
		d := b.allow(event, 1)
		key, ends := b.inspect(event).Key, d.At.Add(d.Usage[1].ResetAfter)
		for there := int64(1); there == 1; {
			state := must(client.Do(t.Context(), client.B().Eval().Script(existsAt).Numkeys(1).Key(key).Build()).AsIntSlice())
			there = state[0]
			if now := time.UnixMilli(state[1]); there == 0 && now.Before(ends) {
				t.Fatalf("gone at %v, counted until %v", now, ends)
			}
		}
		d = b.allow(event, 2)
		if b.give(event, d); redistest.Stored(t, client, key) != `"" -2` {
			t.Fatal("a record without a unit is kept")
		}
	}
}

// existsAt is a script that returns whether the key exists, and the server's time.
const existsAt = `local t = redis.call('TIME') return {redis.call('EXISTS', KEYS[1]), t[1] * 1000 + math.floor(t[2] / 1000)}`

// TestKeptOnChange changes limits under one name, and checks that every limit whose Per stays the
// same keeps its counts.
func TestKeptOnChange(t *testing.T) {
	c := &clock{}
	c.set(noon)
	name := redistest.Key(t)
	with := func(s ...string) bench {
		cfg := window.Config{Name: name, Limits: parsed(s...), Now: c.now, Timeout: time.Minute}
		return bench{t, must(window.New(window.On(redistest.Client(t)), cfg)), c, redistest.Client(t)}
	}
	old := with("5/1m", "20/1h@10m")
	old.allow("e", 4)
	used := func(b bench) (all []int64) {
		for _, l := range b.inspect("e").Limits {
			all = append(all, l.Used)
		}
		return all
	}
	for _, step := range []struct {
		limits []string
		want   []int64
	}{
		{[]string{"20/1h", "5/1m"}, []int64{4, 4}},                // reordered, Resolution changed
		{[]string{"2/1m", "9/1d", "300/1h"}, []int64{4, 0, 4}},    // lowered, added, raised
		{[]string{"5/1m@30s", "20/1h@1h"}, []int64{4, 4}},         // Resolution again
		{[]string{"100/2h"}, []int64{0}},                          // all replaced
		{[]string{"20/1h@10m", "5/1m", "1/5s"}, []int64{4, 4, 0}}, // added
	} {
		if diff := cmp.Diff(step.want, used(with(step.limits...))); diff != "" {
			t.Errorf("%v (-want +got)\n%s", step.limits, diff)
		}
	}
	if d := with("2/1m", "9/1d").allow("e", 1); d.Allowed || d.RetryAfter != time.Minute {
		t.Errorf("a lowered Max allows: %+v", d)
	}
	// A new caller counts under its own limits, and keeps the section of the other limit until that
	// is forgotten.
	young := with("1/5s", "20/1h")
	young.allow("e", 1)
	if diff := cmp.Diff([]int64{4, 5}, used(old)); diff != "" {
		t.Errorf("after an allowed attempt of a caller that does not have 5/1m (-want +got)\n%s", diff)
	}
	c.pass(time.Minute)
	young.allow("e", 1)
	if diff := cmp.Diff([]int64{0, 6}, used(old)); diff != "" {
		t.Errorf("a minute later (-want +got)\n%s", diff)
	}
}

// TestHonestOutage loses replies, refuses connections, and kills and freezes the server. Each time,
// the error must say whether the attempt was counted, and nothing may be sent twice.
func TestHonestOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	faults := &redistest.Faults{}
	client := server.NewClient(t, faults.Break)
	b := bench{t, must(window.New(window.On(client), window.Config{Name: "outage", Limits: parsed("60/1h"), Timeout: 10 * time.Second})), nil, client}

	must("", b.Reset(t.Context(), "e")) // otherwise the lost reply to a reset would be NOSCRIPT
	b.allow("e", 1)
	faults.LoseReply("EVALSHA")
	if _, err := b.AllowN(t.Context(), "e", 10); !errors.Is(err, window.ErrUncertain) {
		t.Fatalf("a lost reply: %v", err)
	}
	if used := b.inspect("e").Limits[0].Used; used != 11 {
		t.Fatalf("after a lost reply %d units are counted, not 11", used)
	}
	faults.LoseReply("EVALSHA")
	if _, err := b.Peek(t.Context(), "e"); !errors.Is(err, window.ErrOutage) || errors.Is(err, window.ErrUncertain) {
		t.Fatalf("a peek cannot be uncertain: %v", err)
	}
	faults.LoseReply("EVALSHA")
	if err := b.Reset(t.Context(), "e"); !errors.Is(err, window.ErrUncertain) {
		t.Fatalf("a lost reset: %v", err)
	}
	b.inspect("e") // otherwise a third failure in a row would start an outage

	faults.Refuse(3)
	faults.Cut()
	if d, err := afterCut(b); err != nil || d.Usage[0].Used > 2 {
		t.Fatalf("refused connections are tried again, and counted once: %+v %v", d, err)
	}

	server.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // enough to send the call
	defer cancel()
	if _, err := b.Allow(ctx, "e"); !errors.Is(err, window.ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a frozen server: %v", err)
	}
	<-ctx.Done()
	if _, err := b.Allow(ctx, "e"); errors.Is(err, window.ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a deadline that passed before: %v", err)
	}
	server.Resume(t)

	server.Kill(t)
	for range 3 {
		_, err := b.Allow(t.Context(), "e")
		if !errors.Is(err, window.ErrOutage) && !errors.Is(err, window.ErrUncertain) {
			t.Fatalf("a dead server: %v", err)
		}
	}
	if _, err := b.Allow(t.Context(), "e"); !errors.Is(err, window.ErrOutage) {
		t.Fatalf("a server that refuses connections: %v", err)
	}
}

// afterCut attempts again on a connection that was just cut, until an attempt no longer hits the
// broken one.
func afterCut(b bench) (d window.Decision, err error) {
	for range 100 {
		if d, err = b.Allow(b.Context(), "e"); err == nil || !errors.Is(err, window.ErrUncertain) {
			break
		}
		b.redis.Do(b.Context(), b.redis.B().Ping().Build())
	}
	return d, err
}

// TestRefundOfOtherLimits refunds through a limiter that has a limit that the attempt did not have.
// The counts of that limit must stay unchanged.
func TestRefundOfOtherLimits(t *testing.T) {
	client, name := redistest.Client(t), redistest.Key(t)
	old := bench{T: t, Limiter: must(window.New(window.On(client), window.Config{Name: name, Limits: parsed("5/1h"), Timeout: time.Minute}))}
	young := bench{T: t, Limiter: must(window.New(window.On(client), window.Config{Name: name, Limits: parsed("5/1h", "5/1m"), Timeout: time.Minute}))}
	d := old.allow("e", 1)
	young.allow("e", 2)
	young.give("e", d)
	if s := young.inspect("e"); s.Limits[0].Used != 2 || s.Limits[1].Used != 2 {
		t.Errorf("%+v", s)
	}
	young.give("e", window.Decision{At: d.At, Counted: 1, Usage: []window.Usage{{Limit: window.PerDay(1)}}})
	young.give("e", window.Decision{At: d.At, Counted: 1})
	if s := young.inspect("e"); s.Limits[0].Used != 1 || s.Limits[1].Used != 1 {
		t.Errorf("a decision without usage is refunded in every limit: %+v", s)
	}
}
