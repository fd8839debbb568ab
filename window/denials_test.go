package window_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/faulttest"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// guarded is a limiter with a denial cache on its own server, and a second client that is
// independent of the limiter.
type guarded struct {
	*window.Limiter
	client    rueidis.Client
	server    *redistest.Server
	admin     rueidis.Client
	cacheOffs *atomic.Int32 // how often Observe received KindCacheOff
}

func newGuarded(t *testing.T, limits []window.Limit, change func(*rueidis.ClientOption)) guarded {
	t.Helper()
	server, cacheOffs := redistest.Start(t), &atomic.Int32{}
	cfg := window.Config{Name: "guarded", Limits: limits, DenialCache: 1000, Timeout: 10 * time.Second, Observe: func(_ context.Context, o window.Observation) {
		if o.Kind == window.KindCacheOff {
			cacheOffs.Add(1)
		}
	}}
	client := server.NewClient(t, change)
	return guarded{must(window.New(window.On(client), cfg)), client, server, server.Client(t), cacheOffs}
}

// other returns a limiter with the same configuration and the given limits, as another process
// would have it.
func (g guarded) other(limits []window.Limit) *window.Limiter {
	return must(window.New(window.On(g.admin), window.Config{Name: "guarded", Limits: limits}))
}

// commands returns how many of the named commands the server has received.
func (g guarded) commands(t *testing.T, names ...string) (calls int) {
	t.Helper()
	info := must(g.admin.Do(t.Context(), g.admin.B().Info().Section("commandstats").Build()).ToString())
	for _, name := range names {
		_, rest, _ := strings.Cut(info, "cmdstat_"+name+":calls=")
		n := 0
		for _, digit := range rest {
			if digit < '0' || digit > '9' {
				break
			}
			n = 10*n + int(digit-'0')
		}
		calls += n
	}
	return calls
}

var cacheCommands = []string{"evalsha", "eval", "get", "multi", "exec", "pttl", "client|caching"}

// denied attempts the event e until its denial is cached and nothing more is sent.
func (g guarded) denied(t *testing.T) window.Decision {
	t.Helper()
	for range 1000 {
		before := g.commands(t, cacheCommands...)
		d := must(g.Allow(t.Context(), "e"))
		if !d.Allowed && g.commands(t, cacheCommands...) == before {
			return d
		}
	}
	t.Fatal("no denial is cached")
	return window.Decision{}
}

// TestDenialsCostNothingUnderLoad checks that 64 callers on one denied event send nothing.
func TestDenialsCostNothingUnderLoad(t *testing.T) {
	g := newGuarded(t, parsed("5/1h"), nil)
	g.denied(t)
	asking, denials := redistest.UnlessShort(time.Second, 500*time.Millisecond), atomic.Int64{}
	before := g.commands(t, cacheCommands...)
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for begin := time.Now(); time.Since(begin) < asking; denials.Add(1) {
				if d, err := g.Allow(context.Background(), "e"); err != nil || d.Allowed {
					t.Errorf("%+v, %v", d, err)
					return
				}
			}
		})
	}
	callers.Wait()
	sent := g.commands(t, cacheCommands...) - before
	t.Logf("%d denials in %v, %d commands", denials.Load(), asking, sent)
	if float64(sent) > max(2, 2*asking.Seconds()) {
		t.Errorf("%d commands in %v", sent, asking)
	}
}

// TestFirstDenialsUnderLoad checks that many callers that arrive at once for a denied event cause
// few calls, including right after the wait is over.
func TestFirstDenialsUnderLoad(t *testing.T) {
	g := newGuarded(t, parsed("1/200ms"), nil)
	g.denied(t)
	var callers sync.WaitGroup
	var allowed atomic.Int64
	asking := redistest.UnlessShort(time.Second, 500*time.Millisecond)
	before, begin := g.commands(t, cacheCommands...), time.Now()
	for range 64 {
		callers.Go(func() {
			for time.Since(begin) < asking || allowed.Load() < 2 && time.Since(begin) < time.Minute { // the machine may be busy
				if must(g.Allow(context.Background(), "e")).Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	callers.Wait()
	rounds := int(time.Since(begin)/(200*time.Millisecond)) + 2
	if sent := g.commands(t, cacheCommands...) - before; sent > 100*rounds || allowed.Load() < 2 || allowed.Load() > int64(rounds) {
		t.Errorf("%d commands for %d windows, %d allowed", sent, rounds, allowed.Load())
	}
}

// TestRememberedDenial checks that a cached denial equals one from Redis, except for the time that
// has passed.
func TestRememberedDenial(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, parsed("1/5s", "2/1h"), nil)
	must(g.Allow(t.Context(), "e"))
	before := must(g.Peek(t.Context(), "e"))
	here := g.denied(t)
	after := must(g.Peek(t.Context(), "e"))
	if here.RetryAfter > before.RetryAfter || here.RetryAfter < after.RetryAfter || here.At.Before(before.At) || here.RetryAfter%time.Millisecond != 0 {
		t.Errorf("%+v between %+v and %+v", here, before, after)
	}
	for i, u := range here.Usage {
		if u.ResetAfter > before.Usage[i].ResetAfter || u.ResetAfter < after.Usage[i].ResetAfter {
			t.Errorf("%+v between %+v and %+v", u, before.Usage[i], after.Usage[i])
		}
		here.Usage[i].ResetAfter, here.Usage[i].RetryAfter = after.Usage[i].ResetAfter, after.Usage[i].RetryAfter
	}
	here.RetryAfter, here.At = after.RetryAfter, after.At
	if diff := cmp.Diff(after, here); diff != "" {
		t.Error(diff)
	}
	for late := time.Now().Add(10 * time.Second); must(g.Allow(t.Context(), "e")).RetryAfter > here.RetryAfter-50*time.Millisecond; {
		if time.Now().After(late) {
			t.Fatal("its wait never ends")
		}
	}
	if d := must(g.Allow(t.Context(), "e")); d.Usage[1].ResetAfter > here.Usage[1].ResetAfter-50*time.Millisecond {
		t.Errorf("%v after %v", d.Usage[1].ResetAfter, here.Usage[1].ResetAfter)
	}
}

// TestOtherUnits checks that a cached denial of two units does not deny a request for one unit.
func TestOtherUnits(t *testing.T) {
	g := newGuarded(t, parsed("3/1h"), nil)
	must(g.AllowN(t.Context(), "e", 2))
	for range 5 {
		if d := must(g.AllowN(t.Context(), "e", 2)); d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
	if d := must(g.Allow(t.Context(), "e")); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

// TestCallersWhoLeaveUnderLoad cancels callers while others wait for the reply to their attempt,
// and checks that no other caller fails.
func TestCallersWhoLeaveUnderLoad(t *testing.T) {
	faults := &redistest.Faults{}
	g := newGuarded(t, parsed("1/20ms"), faults.Break)
	g.denied(t)
	faults.Delay(5 * time.Millisecond)
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for i := range 30 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				if i%3 == 0 {
					time.AfterFunc(2*time.Millisecond, cancel)
				}
				if _, err := g.Allow(ctx, "e"); err != nil && i%3 > 0 {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	callers.Wait()
}

// TestConnectingUnderLoad checks that calls end in time while the server hangs and other callers
// are opening a connection that the cache needs.
func TestConnectingUnderLoad(t *testing.T) {
	t.Parallel()
	server, faults := redistest.Start(t), &redistest.Faults{}
	client := server.NewClient(t, faults.Break)
	cfg := window.Config{Name: "denied", Limits: parsed("1/1h"), Timeout: faulttest.Timeout, DenialCache: 10}
	l := must(window.New(window.On(client), cfg))
	cfg.Name = "other"
	other := must(window.New(window.On(client), cfg))
	for range 5 {
		faulttest.AwaitAnswer(t, l, "e")
	}
	server.Pause(t)
	faults.Cut()
	var callers sync.WaitGroup
	for range 16 { // one of the connections belongs to the cache
		callers.Go(func() { _, _ = other.Allow(context.Background(), "e") })
	}
	for range 3 {
		callers.Go(func() {
			for begin, i := time.Now(), 0; i < 5; i++ {
				called := time.Now()
				_, _ = l.Allow(context.Background(), "e")
				if took := time.Since(called); took > faulttest.Timeout+faulttest.Slack {
					t.Errorf("%v, %v after the start", took, called.Sub(begin))
				}
			}
		})
	}
	callers.Wait()
	server.Resume(t)
	faulttest.AwaitRecovery(t, l)
}

// TestObserverPanics checks that a panic in Observe does not block later calls.
func TestObserverPanics(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var panics, panicked atomic.Bool
	l := must(window.New(window.On(server.Client(t)), window.Config{Name: "panic", Limits: parsed("1/100ms"), DenialCache: 10, Timeout: faulttest.Timeout, Observe: func(_ context.Context, o window.Observation) {
		if o.Kind == window.KindOutageBegan && panics.CompareAndSwap(true, false) {
			panicked.Store(true)
			panic("observer")
		}
	}}))
	for range 5 {
		faulttest.AwaitAnswer(t, l, "e")
	}
	panics.Store(true)
	server.Pause(t)
	for _, event := range []string{"e", "f", "f", "e", "e"} {
		func() {
			defer func() { _ = recover() }()
			_, _ = l.Allow(t.Context(), event)
		}()
	}
	server.Resume(t)
	faulttest.AwaitRecovery(t, l)
	if _, err := l.Allow(t.Context(), "e"); err != nil || !panicked.Load() {
		t.Errorf("%v; it has panicked: %v", err, panicked.Load())
	}
}

// TestWhatEndsADenial checks that each of several changes ends a cached denial: the next attempt is
// allowed, or is answered by Redis.
func TestWhatEndsADenial(t *testing.T) {
	t.Parallel()
	limits := parsed("2/1h")
	for name, end := range map[string]func(t *testing.T, g guarded, first window.Decision){
		"Reset elsewhere": func(t *testing.T, g guarded, _ window.Decision) { check(t, g.other(limits).Reset(t.Context(), "e")) },
		"Reset here":      func(t *testing.T, g guarded, _ window.Decision) { check(t, g.Reset(t.Context(), "e")) },
		"Refund elsewhere": func(t *testing.T, g guarded, d window.Decision) {
			check(t, g.other(limits).Refund(t.Context(), "e", d))
		},
		"Refund here": func(t *testing.T, g guarded, d window.Decision) { check(t, g.Refund(t.Context(), "e", d)) },
		"FLUSHALL":    func(t *testing.T, g guarded, _ window.Decision) { do(t, g.admin, "FLUSHALL") },
		"DEL": func(t *testing.T, g guarded, _ window.Decision) {
			do(t, g.admin, "DEL", must(g.Inspect(t.Context(), "e")).Key)
		},
		"Restart": func(t *testing.T, g guarded, _ window.Decision) { g.server.Restart(t) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t, limits, nil)
			first := must(g.Allow(t.Context(), "e"))
			must(g.Allow(t.Context(), "e"))
			g.denied(t)
			end(t, g, first)
			begin, denials := time.Now(), 0
			for allowed := false; !allowed; denials++ {
				d, err := g.Allow(t.Context(), "e")
				if err != nil && name != "Restart" || time.Since(begin) > 10*time.Second {
					t.Fatalf("%d denials, %v", denials, err)
				}
				allowed = d.Allowed
			}
			t.Logf("allowed after %v and %d denials", time.Since(begin).Round(time.Microsecond), denials-1)
			if strings.HasSuffix(name, " here") && denials > 1 {
				t.Errorf("%d denials", denials-1)
			}
		})
	}
}

// TestAllowingElsewhereEndsADenial lets another process, whose Max is higher, allow an attempt. It
// checks that Redis is then asked again, and denies.
func TestAllowingElsewhereEndsADenial(t *testing.T) {
	g := newGuarded(t, parsed("1/1h"), nil)
	must(g.Allow(t.Context(), "e"))
	if d := g.denied(t); d.Usage[0].Used != 1 {
		t.Fatalf("%+v", d)
	}
	must(g.other(parsed("9/1h")).Allow(t.Context(), "e"))
	for late := time.Now().Add(10 * time.Second); must(g.Allow(t.Context(), "e")).Usage[0].Used != 2; {
		if time.Now().After(late) {
			t.Fatal("the earlier denial is still in the cache")
		}
	}
}

// TestClosedConnectionEndsADenial checks that a closed connection ends a cached denial.
func TestClosedConnectionEndsADenial(t *testing.T) {
	g := newGuarded(t, parsed("1/1h"), nil)
	must(g.Allow(t.Context(), "e"))
	g.denied(t)
	before := g.commands(t, cacheCommands...)
	do(t, g.admin, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	for late := time.Now().Add(10 * time.Second); g.commands(t, cacheCommands...) == before; {
		if d, err := g.Allow(t.Context(), "e"); err == nil && d.Allowed || time.Now().After(late) {
			t.Fatalf("%+v, %v", d, err)
		}
	}
}

// TestSilentConnectionEndsADenial checks that a silent connection ends a cached denial once the
// client has given up on the connection and a call has waited for its Timeout.
func TestSilentConnectionEndsADenial(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, parsed("1/1h"), func(o *rueidis.ClientOption) {
		o.ConnWriteTimeout, o.Dialer.KeepAlive = time.Second, time.Second
	})
	g.Limiter = must(window.New(window.On(g.client), window.Config{Name: "guarded", Limits: parsed("1/1h"), DenialCache: 1000, Timeout: faulttest.Slack}))
	faulttest.AwaitAnswer(t, g.Limiter, "e")
	g.denied(t)
	g.server.Pause(t)
	begin := time.Now()
	for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
		_, err := g.Allow(t.Context(), "e")
		if errors.Is(err, window.ErrOutage) || errors.Is(err, window.ErrUncertain) {
			break
		}
		if err != nil || time.Since(begin) > 30*time.Second {
			t.Fatalf("after %v: %v", time.Since(begin), err)
		}
	}
	t.Logf("denied here for %v of silence", time.Since(begin).Round(10*time.Millisecond))
	g.server.Resume(t)
}

// TestAllowedCostsNoMore checks that attempts on an allowed event send the same commands as without
// a cache.
func TestAllowedCostsNoMore(t *testing.T) {
	g := newGuarded(t, parsed("100/1h"), nil)
	must(g.Allow(t.Context(), "another")) // loads the script
	do(t, g.admin, "CONFIG", "RESETSTAT")
	for range 100 {
		if !must(g.Allow(t.Context(), "e")).Allowed {
			t.Fatal("denied")
		}
	}
	if all, scripts := g.commands(t, cacheCommands...), g.commands(t, "evalsha"); scripts != 100 || all != 200 { // the script makes a GET
		t.Errorf("%d commands, %d of them EVALSHA", all, scripts)
	}
}

// TestCacheThatIsNone checks that if the client caches nothing, Redis decides every denial, and
// KindCacheOff is reported once.
func TestCacheThatIsNone(t *testing.T) {
	g := newGuarded(t, parsed("1/1h"), func(o *rueidis.ClientOption) { o.DisableCache = true })
	for i := range 50 {
		if d := must(g.Allow(t.Context(), "e")); d.Allowed != (i == 0) {
			t.Fatalf("%d: %+v", i, d)
		}
	}
	if n := g.cacheOffs.Load(); n != 1 {
		t.Errorf("KindCacheOff %d times", n)
	}
	do(t, g.admin, "CONFIG", "RESETSTAT")
	must(g.Allow(t.Context(), "e"))
	if n := g.commands(t, "get", "evalsha"); n != 2 {
		t.Errorf("%d commands", n)
	}
}

// TestDenialCacheRefuses checks the errors for settings that cannot be combined with DenialCache.
func TestDenialCacheRefuses(t *testing.T) {
	cfg := window.Config{Name: "x", Limits: parsed("1/1h"), DenialCache: 1}
	_, local := window.NewLocal(cfg)
	cfg.CountDenied = true
	_, counting := window.New(window.On(redistest.Client(t)), cfg)
	cfg.CountDenied, cfg.Now = false, time.Now
	_, clock := window.New(window.On(redistest.Client(t)), cfg)
	cfg.Now, cfg.DenialCache = nil, -1
	_, less := window.New(window.On(redistest.Client(t)), cfg)
	for want, err := range map[string]error{"in memory": local, "CountDenied and a DenialCache": counting, "real time": clock, "DenialCache of -1": less} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestOutageUnderLoad checks that callers that wait for another caller's attempt fail in time if
// Redis hangs.
func TestOutageUnderLoad(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := window.Config{Name: "outage", Limits: parsed("1/100ms"), DenialCache: 10, Timeout: faulttest.Timeout}
	l := must(window.New(window.On(server.Client(t)), cfg))
	cfg.Fallback = must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1/1h")}))
	degraded := must(window.New(window.On(server.Client(t)), cfg))
	for range 5 {
		faulttest.AwaitAnswer(t, l, "e")
		faulttest.AwaitAnswer(t, degraded, "f")
	}
	server.Pause(t)
	for over := time.Now().Add(150 * time.Millisecond); time.Now().Before(over); { // the waits of the denials
		_, _ = l.Peek(t.Context(), "e")
	}
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			begin := time.Now()
			_, err := l.Allow(context.Background(), "e")
			if took := time.Since(begin); took > faulttest.Timeout+faulttest.Slack || !errors.Is(err, window.ErrOutage) && !errors.Is(err, window.ErrUncertain) {
				t.Errorf("%v after %v", err, took)
			}
			if d, err := degraded.Allow(context.Background(), "f"); err != nil || !d.Degraded {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	callers.Wait()
	server.Resume(t)
	faulttest.AwaitRecovery(t, l)
}

// TestCachedReadsUnderLoad checks that a server that rejects scripts, but still answers the GETs of
// the denial cache, causes exactly one outage.
func TestCachedReadsUnderLoad(t *testing.T) {
	server := redistest.Start(t)
	var began, ended atomic.Int32
	l := must(window.New(window.On(server.Client(t)), window.Config{Name: "look", Limits: parsed("1/1h"), DenialCache: 1000, Timeout: 10 * time.Second, Observe: func(_ context.Context, o window.Observation) {
		switch o.Kind { //nolint:exhaustive // attempts do not matter
		case window.KindOutageBegan:
			began.Add(1)
		case window.KindOutageEnded:
			ended.Add(1)
		}
	}}))
	for i := range 500 {
		must(l.Allow(t.Context(), strconv.Itoa(i)))
		must(l.Allow(t.Context(), strconv.Itoa(i))) // the next attempt reads the cache
	}
	if err := server.Do(t.Context(), "ACL", "SETUSER", "default", "-evalsha").Error(); err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for c := range 16 {
		callers.Go(func() {
			for i := range 500 {
				_, _ = l.Allow(t.Context(), strconv.Itoa((i+31*c)%500))
			}
		})
	}
	callers.Wait()
	if began.Load() != 1 || ended.Load() != 0 {
		t.Errorf("%d outages began, and %d ended", began.Load(), ended.Load())
	}
}

// TestDenialsAreRightUnderLoad runs callers that give up at random moments, and another process
// that resets and attempts. Once the client has received all changes, it must deny only if Redis
// denies.
func TestDenialsAreRightUnderLoad(t *testing.T) {
	client, admin := redistest.Client(t), redistest.NewClient(t, nil)
	for range redistest.UnlessShort(200, 20) {
		cfg := window.Config{Name: redistest.Key(t), Limits: parsed("2/1h", "3/2h"), Timeout: 10 * time.Second}
		other := must(window.New(window.On(admin), cfg))
		cfg.DenialCache = 10
		l := must(window.New(window.On(client), cfg))
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 30 {
					ctx, cancel := context.WithTimeout(context.Background(), rand.N(time.Millisecond))
					_, _ = l.Allow(ctx, "e")
					cancel()
				}
			})
		}
		for range 3 {
			callers.Go(func() {
				for range 20 {
					if rand.IntN(2) == 0 {
						must(other.Allow(context.Background(), "e"))
					} else if err := other.Reset(context.Background(), "e"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		awaitChange(t, admin, client, key(t, l, "e"))
		if got, now := must(l.Allow(t.Context(), "e")), must(other.Peek(t.Context(), "e")); !got.Allowed && now.Allowed {
			t.Fatalf("got %+v, while Redis says %+v", got, now) // attempts of callers that gave up may still be counted, but they free nothing
		}
	}
}

// awaitChange waits until the client has the same value of the key as Redis, and no earlier read of
// the cache is still in use.
func awaitChange(t *testing.T, admin, client rueidis.Client, key string) {
	t.Helper()
	for late := time.Now().Add(10 * time.Second); ; {
		now, err1 := admin.Do(t.Context(), admin.B().Get().Key(key).Build()).ToString()
		here, err2 := client.DoCache(t.Context(), client.B().Get().Key(key).Cache(), time.Minute).ToString()
		if now == here && (err1 == nil) == (err2 == nil) {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("the client does not learn of a change: %v, %v", err1, err2)
		}
	}
	for lease := time.Now().Add(time.Millisecond); time.Now().Before(lease); { // a read of the cache stays in use for a tenth of this time
	}
}

// BenchmarkDenied measures a cached denial with 64 callers.
func BenchmarkDenied(b *testing.B) {
	client := redistest.Client(b)
	for _, limits := range [][]string{{"1/1h"}, {"1/5m", "1/1h", "1/1d"}} {
		l := must(window.New(window.On(client), window.Config{Name: redistest.Key(b), Limits: parsed(limits...), DenialCache: 10}))
		for range 5 {
			must(l.Allow(b.Context(), "e"))
		}
		b.Run(strings.Join(limits, ","), func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if must(l.Allow(context.Background(), "e")).Allowed {
						panic("allowed")
					}
				}
			})
		})
	}
}
