package window_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// guarded is a limiter with a denial cache on its own server, and a second client that is
// independent of the limiter.
type guarded struct {
	*window.Limiter
	server *redistest.Server
	admin  rueidis.Client
}

func newGuarded(t *testing.T, limits []window.Limit) guarded {
	t.Helper()
	server := redistest.Start(t)
	cfg := window.Config{Name: "guarded", Limits: limits, DenialCache: 1000, Timeout: 10 * time.Second}
	return guarded{must(window.New(window.On(server.NewClient(t, nil)), cfg)), server, server.Client(t)}
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

// scriptCommands are the commands of a decision: the script calls GET.
var scriptCommands = []string{"evalsha", "eval", "get"}

// denied attempts the event e until its denial is cached and nothing more is sent.
func (g guarded) denied(t *testing.T) {
	t.Helper()
	for range 1000 {
		before := g.commands(t, scriptCommands...)
		d := must(g.Allow(t.Context(), "e"))
		if !d.Allowed && g.commands(t, scriptCommands...) == before {
			return
		}
	}
	t.Fatal("no denial is cached")
}

// TestDenialsCostLittleUnderLoad checks that 64 callers on one denied event send a few commands a
// second: those of the callers that ask at once when the cached denial has ended.
func TestDenialsCostLittleUnderLoad(t *testing.T) {
	g := newGuarded(t, parsed("5/1h"))
	g.denied(t)
	asking, denials := redistest.UnlessShort(3*time.Second, time.Second), atomic.Int64{}
	before, begin := g.commands(t, scriptCommands...), time.Now()
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for ; time.Since(begin) < asking; denials.Add(1) {
				if d, err := g.Allow(context.Background(), "e"); err != nil || d.Allowed {
					t.Errorf("%+v, %v", d, err)
					return
				}
			}
		})
	}
	callers.Wait()
	sent, took := g.commands(t, scriptCommands...)-before, time.Since(begin)
	t.Logf("%d denials in %v, %d commands", denials.Load(), took, sent)
	if ends := int(took / time.Second); sent > 16*(ends+1) {
		t.Errorf("%d commands in %v", sent, took)
	}
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
	faulttest.AwaitAnswer(t, l, "e")
	if _, err := l.Allow(t.Context(), "e"); err != nil || !panicked.Load() {
		t.Errorf("%v; it has panicked: %v", err, panicked.Load())
	}
}

// TestWhatEndsADenial checks that each of several changes ends a cached denial: changes by this
// limiter at once, and others within about a second.
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
			t.Parallel()
			g := newGuarded(t, limits)
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

// TestCountedUnitsEndADenial checks that units that this process counts end a cached denial, because
// they lengthen its wait.
func TestCountedUnitsEndADenial(t *testing.T) {
	for name, count := range map[string]func(g guarded) error{
		"Allow":     func(g guarded) error { _, err := g.Allow(t.Context(), "e"); return err },
		"AllowUpTo": func(g guarded) error { _, err := g.AllowUpTo(t.Context(), "e", 1); return err },
		"Charge":    func(g guarded) error { _, err := g.Charge(t.Context(), "e", 1); return err },
		"AllowAll": func(g guarded) error {
			_, err := window.AllowAll(t.Context(), window.Check{Limiter: g.Limiter, Event: "e"}, window.Check{Limiter: g.Limiter, Event: "f"})
			return err
		},
	} {
		g := newGuarded(t, parsed("3/1h"))
		must(g.AllowN(t.Context(), "e", 2))
		must(g.AllowN(t.Context(), "e", 2))
		check(t, count(g))
		if d := must(g.AllowN(t.Context(), "e", 2)); d.Allowed || d.Usage[0].Used != 3 {
			t.Errorf("after %s: %+v", name, d)
		}
	}
}

// TestAllowedCostsNoMore checks that attempts on an allowed event send the same commands as without
// a cache.
func TestAllowedCostsNoMore(t *testing.T) {
	g := newGuarded(t, parsed("100/1h"))
	must(g.Allow(t.Context(), "another")) // loads the script
	do(t, g.admin, "CONFIG", "RESETSTAT")
	for range 100 {
		if !must(g.Allow(t.Context(), "e")).Allowed {
			t.Fatal("denied")
		}
	}
	if all, scripts := g.commands(t, scriptCommands...), g.commands(t, "evalsha"); scripts != 100 || all != 200 { // the script makes a GET
		t.Errorf("%d commands, %d of them EVALSHA", all, scripts)
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

// TestOwnChangesUnderLoad runs callers that give up at random moments, and others of the same
// process that refund and reset, while another process makes attempts. Once all have ended, the
// limiter must deny only if Redis denies.
func TestOwnChangesUnderLoad(t *testing.T) {
	client, admin := redistest.Client(t), redistest.NewClient(t, nil)
	var remembered atomic.Int64
	denied, rounds := 0, redistest.UnlessShort(400, 40)
	for range rounds {
		cfg := window.Config{Name: redistest.Key(t), Limits: parsed("2/1h", "3/2h"), Timeout: 10 * time.Second}
		other := must(window.New(window.On(admin), cfg))
		cfg.DenialCache, cfg.Observe = 10, func(_ context.Context, o window.Observation) {
			if o.Trace.Remembered {
				remembered.Add(1)
			}
		}
		l := must(window.New(window.On(client), cfg))
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 30 {
					ctx, cancel := context.WithTimeout(context.Background(), rand.N(5*time.Millisecond))
					_, _ = l.Allow(ctx, "e")
					cancel()
				}
			})
		}
		for range 2 {
			callers.Go(func() {
				for range 1 + rand.IntN(20) {
					if err := changeAtRandom(l, other); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		got, now := must(l.Allow(t.Context(), "e")), must(other.Peek(t.Context(), "e"))
		if !got.Allowed && now.Allowed {
			t.Fatalf("got %+v, while Redis says %+v", got, now) // attempts of callers that gave up may still be counted, but they free nothing
		}
		if !got.Allowed {
			denied++
		}
	}
	t.Logf("%d of %d denied at the end, %d cached denials", denied, rounds, remembered.Load())
	if denied < rounds/20 || denied > rounds*19/20 || remembered.Load() < int64(rounds) {
		t.Error("this test proves too little")
	}
}

// changeAtRandom resets the event, makes an attempt and refunds or settles it, or makes an attempt
// in another process.
func changeAtRandom(l, other *window.Limiter) error {
	ctx := context.Background()
	switch rand.IntN(5) {
	case 0:
		return l.Reset(ctx, "e")
	case 1:
		return window.UndoAll(ctx, window.Undo{Limiter: l, Event: "e"})[0]
	case 2:
		_, err := other.Allow(ctx, "e")
		return err
	}
	d, err := l.Allow(ctx, "e")
	if err != nil || !d.Allowed {
		return err
	}
	if rand.IntN(2) == 0 {
		return l.Refund(ctx, "e", d)
	}
	_, err = l.Settle(ctx, "e", d, 0)
	return err
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
