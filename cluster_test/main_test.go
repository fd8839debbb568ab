// Package cluster_test holds limiters against a real Redis Cluster of three masters and three replicas, whose slots move and whose nodes fail
// while they decide. With -v, tests print what they measured.
package cluster_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"flag"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/goredisgate"
	"github.com/slidegate/slidegate/internal/faulttest"
	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestMain runs more tests side by side than there are cores: those that may all wait.
func TestMain(m *testing.M) {
	must("", flag.Set("test.parallel", "8"))
	redistest.Main(m)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// limiter is one of either kind.
type limiter interface {
	Allow(ctx context.Context, event string) (window.Decision, error)
	AllowEach(ctx context.Context, events []string) []window.Result
	Peek(ctx context.Context, event string) (window.Decision, error)
	Wait(ctx context.Context, event string) (window.Decision, error)
	Refund(ctx context.Context, event string, d window.Decision) error
	Reset(ctx context.Context, event string) error
}

// A kind of limiter, on a kind of client. Each passes the same tests.
type kind struct {
	name   string
	suffix string // of its keys
	open   faulttest.Open
	newOn  func(*window.Connection, window.Config) (limiter, error)
}

// kinds are the limiters on rueidis, and everyKind those on go-redis, too: for tests of faults.
var (
	kinds     = []kind{{"window", "w", faulttest.Rueidis, newWindow}, {"ar1", "a", faulttest.Rueidis, newLevel}}
	everyKind = append(kinds[:2:2], kind{"window on go-redis", "w", goRedis, newWindow})
)

func newWindow(conn *window.Connection, cfg window.Config) (limiter, error) {
	return window.NewOn(conn, cfg)
}

func newLevel(conn *window.Connection, cfg window.Config) (limiter, error) {
	return ar1.NewOn(conn, ar1.Config{Name: cfg.Name, Limits: cfg.Limits, Timeout: cfg.Timeout, Now: cfg.Now, DenialCache: cfg.DenialCache})
}

// goRedis is the Open of go-redis.
func goRedis(tb testing.TB, o rueidis.ClientOption) *window.Connection {
	tb.Helper()
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: o.InitAddress, MasterName: o.Sentinel.MasterSet, IsClusterMode: !o.ForceSingleClient && o.Sentinel.MasterSet == "",
		ReadTimeout: time.Second, Dialer: faulttest.Dialer(o),
	})
	tb.Cleanup(func() { _ = client.Close() })
	conn := must(goredisgate.Connect(client))
	tb.Cleanup(conn.Close)
	return conn
}

// make returns a limiter on a client that a test has for other things, too.
func (k kind) make(client rueidis.Client, cfg window.Config) (limiter, error) {
	conn := window.Connect(func(context.Context) (rueidis.Client, error) { return client, nil })
	if err := conn.Wait(context.Background()); err != nil {
		return nil, err
	}
	return k.newOn(conn, cfg)
}

// on returns a limiter on a client of its own.
func (k kind) on(t *testing.T, o rueidis.ClientOption, cfg window.Config) limiter {
	t.Helper()
	return must(k.newOn(k.open(t, o), cfg))
}

// each runs a test for each kind.
func each(t *testing.T, test func(*testing.T, kind)) {
	for _, k := range redistest.UnlessShort(kinds, kinds[:1]) {
		t.Run(k.name, func(t *testing.T) { test(t, k) })
	}
}

// eachClient is as each, on each kind of client.
func eachClient(t *testing.T, test func(*testing.T, kind)) {
	for _, k := range redistest.UnlessShort(everyKind, []kind{everyKind[0], everyKind[2]}) {
		t.Run(k.name, func(t *testing.T) { test(t, k) })
	}
}

// of is a limiter of this kind that no other test shares, with these limits. It is patient, as a machine may be busy.
func (k kind) of(t *testing.T, o rueidis.ClientOption, limits ...window.Limit) limiter {
	t.Helper()
	return k.on(t, o, window.Config{Name: redistest.Key(t), Limits: limits, Timeout: 10 * time.Second})
}

// inTime is as of, with the default Timeout.
func (k kind) inTime(t *testing.T, o rueidis.ClientOption, limits ...window.Limit) limiter {
	t.Helper()
	return k.on(t, o, window.Config{Name: redistest.Key(t), Limits: limits})
}

// A contestant is a limiter of a kind, and the crowd that asks it.
type contestant struct {
	kind
	limiter limiter
	*crowd
}

// contest has a crowd for each kind, of as many callers, so that all go through the same faults.
func contest(t *testing.T, of func(kind) limiter, next func(n int) string) (all []*contestant) {
	t.Helper()
	for _, k := range everyKind {
		l := of(k)
		all = append(all, &contestant{k, l, load(t, callers, l.Allow, next)})
	}
	return all
}

// judge runs a test for each contestant.
func judge(t *testing.T, all []*contestant, test func(*testing.T, *contestant)) {
	t.Helper()
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) { test(t, c) })
	}
}

// key is that of an event which stands for itself.
func (k kind) key(name, event string) string { return name + ":{" + event + "}:" + k.suffix }

// slotOf is the hash slot of an event that stands for itself.
func slotOf(event string) int { return keys.Slot("{" + event + "}") }

// months is so many in thirty days, so that nothing is forgotten while a test runs, nor decays by more than a little.
func months(n int64) window.Limit { return window.Limit{Max: n, Per: 30 * 24 * time.Hour} }

// TestSlots: of 10,000 events, which are spread over all slots, each leaves one key, in its own slot.
func TestSlots(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		nodes, name, spread := redistest.Replicated(t), redistest.Key(t), map[int]bool{}
		client := nodes.NewClient(t, nil)
		l := must(k.make(client, window.Config{Name: name, Limits: []window.Limit{months(1), window.PerHour(2)}}))
		var askers sync.WaitGroup
		for caller := range 16 {
			askers.Go(func() {
				for i := caller; i < 10_000; i += 16 {
					event := fmt.Sprint("203.0.113.", i)
					if d, err := l.Allow(t.Context(), event); err != nil || !d.Allowed {
						t.Errorf("%s: %+v %v", event, d, err)
					}
					if err := client.Do(t.Context(), client.B().Get().Key(k.key(name, event)).Build()).Error(); err != nil {
						t.Errorf("%s: %v", event, err)
					}
				}
			})
		}
		askers.Wait()
		for i := range 10_000 {
			spread[slotOf(fmt.Sprint("203.0.113.", i))/64] = true
		}
		if made := sampleKeys(t, nodes, name); len(made) != 10_000 || len(spread) != 256 {
			t.Errorf("%d keys, in %d of 256 parts of the slots", len(made), len(spread))
		}
	})
}

// keys are those of a limiter, on the masters of all shards.
func sampleKeys(t *testing.T, nodes *redistest.Nodes, name string) (all []string) {
	t.Helper()
	for _, events := range shardEvents {
		master := nodes.MasterOf(t, slotOf(events[0]))
		for at := uint64(0); ; {
			page, err := master.Do(t.Context(), "SCAN", strconv.FormatUint(at, 10), "MATCH", name+":*", "COUNT", "1000").AsScanEntry()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, page.Elements...)
			if at = page.Cursor; at == 0 {
				break
			}
		}
	}
	return all
}

// hostile are events that broke other limiters.
var hostile = []string{
	"}", "{", "{}", "}x", "a{b}c", "}{", "{}{user}", "\x00", "\xff\xfe", "~hash", "%7D", " ", "é", "\r\n", "w", ":w",
	strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("x", 129) + "y", hashed(strings.Repeat("x", 129)),
	strings.Repeat("{", 1000), strings.Repeat("}", 10<<20),
}

// hashed is how a long event is stored.
func hashed(event string) string {
	sum := sha256.Sum256([]byte(event))
	return "~" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// TestHostileEvents: each is one event to every verb, without an error, and disturbs no other.
func TestHostileEvents(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		nodes, name := redistest.Replicated(t), redistest.Key(t)
		l := must(k.make(nodes.NewClient(t, nil), window.Config{Name: name, Limits: []window.Limit{months(1), window.PerHour(5)}}))
		taken := map[string]window.Decision{}
		for _, allowed := range []bool{true, false} {
			for _, event := range hostile {
				d, err := l.Allow(t.Context(), event)
				if err != nil || d.Allowed != allowed {
					t.Errorf("%.20q: %+v %v", event, d, err)
				}
				if allowed {
					taken[event] = d
				}
			}
		}
		whole := regexp.MustCompile(`^` + regexp.QuoteMeta(name) + `:\{[^{}]+\}:` + k.suffix + `$`)
		made := sampleKeys(t, nodes, name)
		for _, key := range made {
			if !whole.MatchString(key) {
				t.Errorf("an event left its braces: %q", key)
			}
		}
		if len(made) != len(hostile) {
			t.Errorf("%d keys of %d events: %q", len(made), len(hostile), made)
		}
		for i, event := range hostile {
			if err := l.Refund(t.Context(), event, taken[event]); err != nil {
				t.Errorf("%.20q: %v", event, err)
			}
			for j, other := range hostile {
				if d, err := l.Peek(t.Context(), other); err != nil || d.Allowed != (j <= i) {
					t.Errorf("%.20q after the refund of %.20q: %+v %v", other, event, d, err)
				}
			}
		}
		for _, event := range hostile {
			if err := l.Reset(t.Context(), event); err != nil {
				t.Errorf("%.20q: %v", event, err)
			}
		}
	})
}
