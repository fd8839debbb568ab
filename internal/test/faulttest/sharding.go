package faulttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// ShardingUnderLoad checks that limits hold behind a proxy that distributes the keys over two
// servers, and sends a call for several keys to the server of the first key.
func ShardingUnderLoad(t *testing.T, open Open) {
	for _, share := range []uint64{500, 50} {
		t.Run(fmt.Sprint("of a thousand keys ", share), func(t *testing.T) {
			t.Parallel()
			proxy, calls := redistest.NewSharder(t, share), &redistest.Calls{}
			l := must(window.New(open(t, proxy.Options(calls.Count)), sharded(t)))
			useUp(t, l, proxy)
			if calls.Marks.Load() == 0 || calls.Several.Load() > 0 {
				t.Errorf("%d proofs, and then %d calls for several events", calls.Marks.Load(), calls.Several.Load())
			}
		})
	}
}

// ShardingBeginsUnderLoad checks what happens when a proxy starts to distribute the keys. Once the
// next proof has failed, each call decides only one event, and limits hold for new events.
func ShardingBeginsUnderLoad(t *testing.T, open Open) {
	t.Parallel()
	proxy, calls := redistest.NewSharder(t, 0), &redistest.Calls{}
	l := must(window.New(open(t, proxy.Options(calls.Count)), sharded(t)))
	AwaitGroups(t, l, calls)
	proxy.Share(500)
	ask := Asker(t, l)
	calls.AwaitProof(t, ask)
	calls.AwaitSingles(t, ask)
	before := calls.Several.Load()
	useUp(t, l, proxy)
	if after := calls.Several.Load(); after > before {
		t.Errorf("%d more calls for several events", after-before)
	}
}

// RoutingUnderLoad checks that limits hold behind a proxy that chooses the server by the limiter's
// name, if two limiters on different servers share a Connection.
func RoutingUnderLoad(t *testing.T, open Open) {
	t.Parallel()
	proxy, calls := redistest.NewSharder(t, 500), &redistest.Calls{}
	proxy.ByName()
	conn := open(t, proxy.Options(calls.Count))
	first, second := sharded(t), sharded(t)
	for proxy.Of(first.Name+":{") == proxy.Of(second.Name+":{") {
		second = sharded(t)
	}
	var all sync.WaitGroup
	for _, cfg := range []window.Config{first, second} {
		l := must(window.New(conn, cfg))
		AwaitGroups(t, l, calls)
		all.Go(func() { useUp(t, l, proxy) })
	}
	all.Wait()
}

const sharedMax = 7 // units of each event

func sharded(t *testing.T) window.Config {
	t.Helper()
	return window.Config{Name: redistest.Key(t), Limits: []window.Limit{window.PerHour(sharedMax)}, Timeout: time.Minute}
}

// AwaitGroups waits until the limiter's script calls are for several events. The limiter's client
// must count them in calls. AwaitGroups makes attempts for events that no test uses.
func AwaitGroups(t *testing.T, l allower, calls *redistest.Calls) {
	t.Helper()
	calls.AwaitSeveral(t, Asker(t, l))
}

// An allower is a limiter, such as a *window.Limiter.
type allower interface {
	Allow(ctx context.Context, event string) (window.Decision, error)
}

// Asker returns a function that makes an attempt for each of the events, all at once. It fails the
// test if an attempt has an error.
func Asker(t *testing.T, l allower) func(events []string) {
	t.Helper()
	return func(events []string) {
		redistest.AtOnce(len(events), func(i int) {
			if _, err := l.Allow(t.Context(), events[i]); err != nil {
				t.Errorf("%s: %v", events[i], err)
			}
		})
	}
}

// useUp makes far more attempts for many events than the limit allows, from many callers. It checks
// that exactly Max units of each event are allowed, and that each event is on the right server.
func useUp(t *testing.T, l *window.Limiter, proxy *redistest.Sharder) {
	t.Helper()
	const callers = 16 // of each kind
	events := numbered(redistest.UnlessShort(300, 40))
	index := map[string]int{}
	for i := range events {
		events[i] = "shared-" + events[i]
		index[events[i]] = i
	}
	allowed := make([]atomic.Int64, len(events))
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			mine := shuffled(events)
			redistest.AtOnce(len(mine), func(i int) {
				d, err := l.Allow(t.Context(), mine[i])
				count(t, &allowed[index[mine[i]]], d, err)
			})
		})
		all.Go(func() {
			for _, event := range shuffled(events) {
				d, err := l.AllowN(t.Context(), event, 1+rand.Int64N(2))
				count(t, &allowed[index[event]], d, err)
			}
		})
	}
	all.Wait()
	for i, event := range events {
		s := must(l.Inspect(t.Context(), event))
		if n := allowed[i].Load(); n != sharedMax || s.Limits[0].Used != n {
			t.Errorf("%s: %d units allowed, %d counted, want %d", event, n, s.Limits[0].Used, sharedMax)
		}
		for n, server := range proxy.Servers {
			exists := must(server.Do(t.Context(), "EXISTS", s.Key).AsInt64()) == 1
			if exists != (n == proxy.Of(s.Key)) {
				t.Errorf("%s: on server %d: %v", event, n, exists)
			}
		}
	}
}

func shuffled(events []string) []string {
	events = slices.Clone(events)
	rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	return events
}

// count adds the units granted by d to the counter to.
func count(t *testing.T, to *atomic.Int64, d window.Decision, err error) {
	if err != nil {
		t.Error(err)
	}
	to.Add(d.Granted)
}

// OneNodeOfCluster checks a client that takes one node of a cluster for a single server. Events on
// that node are decided, one per call. Attempts for other events return ErrOutage.
func OneNodeOfCluster(t *testing.T, open Open) {
	t.Parallel()
	calls := &redistest.Calls{}
	o := redistest.ClusterOptions(t)
	o.InitAddress, o.ForceSingleClient = o.InitAddress[:1], true
	node := must(rueidis.NewClient(o))
	defer node.Close()
	calls.Count(&o)
	cfg := sharded(t)
	l := must(window.New(open(t, o), cfg))
	var own []string
	other := ""
	for _, event := range numbered(500) {
		key := cfg.Name + ":{" + strings.ReplaceAll(event, " ", "%20") + "}:w"
		if node.Do(t.Context(), node.B().Exists().Key(key).Build()).Error() == nil {
			own = append(own, event)
		} else {
			other = event
		}
	}
	for round := 0; round < sharedMax || calls.Marks.Load() == 0; round++ {
		redistest.AtOnce(len(own), func(i int) {
			d, err := l.Allow(t.Context(), own[i])
			if err != nil || d.Allowed != (round < sharedMax) || d.Usage[0].Used != int64(min(sharedMax, round+1)) {
				t.Errorf("round %d, %s: %+v, %v", round, own[i], d, err)
			}
		})
	}
	if _, err := l.Allow(t.Context(), other); !errors.Is(err, window.ErrOutage) || !strings.Contains(err.Error(), "MOVED") {
		t.Error(err)
	}
	if calls.Several.Load() > 0 {
		t.Errorf("%d calls for several events", calls.Several.Load())
	}
}
