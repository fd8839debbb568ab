// Package cluster_test tests rate limiters on a real Redis Cluster with three masters and three
// replicas, while slots move and nodes fail. With -v, tests print their measurements.
package cluster_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/goredisgate"
	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestMain runs more tests in parallel than there are cores, because parallel tests mostly wait.
func TestMain(m *testing.M) {
	must("", flag.Set("test.parallel", "8"))
	logging.Disable() // go-redis logs every failed dial
	redistest.Main(m)
}

func must[T any](v T, err error) T { return redistest.Must(v, err) }

// limiter is the interface that all kinds of limiters implement.
type limiter interface {
	Allow(ctx context.Context, event string) (window.Decision, error)
	Peek(ctx context.Context, event string) (window.Decision, error)
	Refund(ctx context.Context, event string, d window.Decision) error
	Reset(ctx context.Context, event string) error
}

// kind is a kind of limiter on a kind of client. All kinds must pass the same tests.
type kind struct {
	name   string
	suffix string // of the limiter's keys
	open   faulttest.Open
	new    func(*window.Connection, window.Config) (limiter, error)
}

// kinds lists the limiters on rueidis. everyKind also contains a limiter on go-redis, for tests
// with faults.
var (
	kinds     = []kind{{"window", "w", faulttest.Rueidis, newWindow}, {"ar1", "a", faulttest.Rueidis, newLevel}}
	everyKind = append(kinds[:2:2], kind{"window on go-redis", "w", goRedis, newWindow})
)

// mixedKinds is like everyKind, but each attempt of a window limiter comes after calls that need its
// other scripts. None of these calls may fail.
var mixedKinds = []kind{{"window", "w", faulttest.Rueidis, newMixed}, kinds[1], {"window on go-redis", "w", goRedis, newMixed}}

// newMixed returns a faulttest.Mixed.
func newMixed(conn *window.Connection, cfg window.Config) (limiter, error) {
	return faulttest.NewMixed(conn, cfg)
}

// newWindow returns a window limiter.
func newWindow(conn *window.Connection, cfg window.Config) (limiter, error) {
	return window.New(conn, cfg)
}

// newLevel returns an ar1 limiter. It has no DenialCache.
func newLevel(conn *window.Connection, cfg window.Config) (limiter, error) {
	return ar1.New(conn, ar1.Config{Name: cfg.Name, Limits: cfg.Limits, Timeout: cfg.Timeout, Now: cfg.Now})
}

// goRedis returns a connection through go-redis. It is a faulttest.Open.
func goRedis(tb testing.TB, o rueidis.ClientOption) *window.Connection {
	tb.Helper()
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: o.InitAddress, MasterName: o.Sentinel.MasterSet, IsClusterMode: !o.ForceSingleClient && o.Sentinel.MasterSet == "",
		ReadTimeout: cmp.Or(o.ConnWriteTimeout, time.Minute), DialerRetries: 1, Dialer: faulttest.Dialer(o),
	})
	tb.Cleanup(func() { _ = client.Close() })
	conn := goredisgate.On(client)
	tb.Cleanup(conn.Close)
	return conn
}

// newOnClient returns a limiter on a client that the test uses for other calls too.
func (k kind) newOnClient(client rueidis.Client, cfg window.Config) (limiter, error) {
	return k.newOn(window.On(client), cfg)
}

// newOn returns a limiter on a Connection. If cfg has no Timeout, it is a minute, because the machine
// may be busy.
func (k kind) newOn(conn *window.Connection, cfg window.Config) (limiter, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	return k.new(conn, cfg)
}

// newWithConfig returns a limiter on a new client.
func (k kind) newWithConfig(t *testing.T, o rueidis.ClientOption, cfg window.Config) limiter {
	t.Helper()
	return must(k.newOn(k.open(t, o), cfg))
}

// each runs a test for every kind.
func each(t *testing.T, test func(*testing.T, kind)) {
	for _, k := range redistest.UnlessShort(kinds, kinds[:1]) {
		t.Run(k.name, func(t *testing.T) { test(t, k) })
	}
}

// eachClient runs a test for every kind on every kind of client.
func eachClient(t *testing.T, test func(*testing.T, kind)) { eachOf(t, everyKind, test) }

// eachOf runs a test for everyKind or mixedKinds.
func eachOf(t *testing.T, all []kind, test func(*testing.T, kind)) {
	for _, k := range redistest.UnlessShort(all, []kind{all[0], all[2]}) {
		t.Run(k.name, func(t *testing.T) { test(t, k) })
	}
}

// newLimiter returns a limiter with the given limits. No other test uses its name.
func (k kind) newLimiter(t *testing.T, o rueidis.ClientOption, limits ...window.Limit) limiter {
	t.Helper()
	return k.newWithConfig(t, o, window.Config{Name: redistest.Key(t), Limits: limits})
}

// newWithShortTimeout is like newLimiter, but its Timeout is a second.
func (k kind) newWithShortTimeout(t *testing.T, o rueidis.ClientOption, limits ...window.Limit) limiter {
	t.Helper()
	return k.newWithConfig(t, o, window.Config{Name: redistest.Key(t), Limits: limits, Timeout: timeout})
}

// loadedLimiter is a limiter of some kind under load.
type loadedLimiter struct {
	kind
	limiter limiter
	*callerGroup
}

// loadEveryKind puts a limiter of every kind under the same load, so that all of them experience
// the same faults.
func loadEveryKind(t *testing.T, of func(kind) limiter, next func(n int) string) (all []*loadedLimiter) {
	t.Helper()
	return loadEach(t, everyKind, of, next)
}

// loadEach does the same for everyKind or mixedKinds.
func loadEach(t *testing.T, kinds []kind, of func(kind) limiter, next func(n int) string) (all []*loadedLimiter) {
	t.Helper()
	for _, k := range kinds {
		l := of(k)
		all = append(all, &loadedLimiter{k, l, startLoad(t, callers, l.Allow, next)})
	}
	return all
}

// eachLoaded runs a test for each limiter under load.
func eachLoaded(t *testing.T, all []*loadedLimiter, test func(*testing.T, *loadedLimiter)) {
	t.Helper()
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) { test(t, c) })
	}
}

// key returns the Redis key of an event that is stored unchanged.
func (k kind) key(name, event string) string { return name + ":{" + event + "}:" + k.suffix }

// slotOf returns the hash slot of an event that is stored unchanged.
func slotOf(event string) int { return keys.Slot("{" + event + "}") }

// neverReached is a limit that no test reaches.
const neverReached = 100_000

// perMonth returns a limit of n units in thirty days. No unit expires during a test, and levels
// decay only a little.
func perMonth(n int64) window.Limit { return window.Limit{Max: n, Per: 30 * 24 * time.Hour} }

// sampleKeys returns the keys of a limiter on the masters of all shards.
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

// attempt represents a call and its outcome.
type attempt struct {
	event    string
	decision window.Decision
	err      error
	began    time.Time
	took     time.Duration
}

func (a attempt) ended() time.Time { return a.began.Add(a.took) }
func (a attempt) allowed() bool    { return a.err == nil && a.decision.Allowed }

// allowFunc is a limiter's method Allow, or a function like it.
type allowFunc func(ctx context.Context, event string) (window.Decision, error)

func (ask allowFunc) attempt(ctx context.Context, event string) attempt {
	began := time.Now()
	d, err := ask(ctx, event)
	return attempt{event, d, err, began, time.Since(began)}
}

// callerGroup is a group of callers that send attempts until end is called.
type callerGroup struct {
	callers   sync.WaitGroup
	stopping  atomic.Bool
	allowed   atomic.Int64
	denied    atomic.Int64
	uncertain atomic.Int64

	mu  sync.Mutex
	all []attempt
}

// startLoad starts callers, each of which sends an attempt at most every 20 ms. next returns the
// event of the nth attempt of all callers together.
func startLoad(t *testing.T, callers int, ask allowFunc, next func(n int) string) *callerGroup {
	t.Helper()
	var c callerGroup
	t.Cleanup(func() { c.end() })
	var n atomic.Int64
	for range callers {
		c.callers.Go(func() {
			var mine []attempt
			pace := time.NewTicker(20 * time.Millisecond)
			defer pace.Stop()
			for ; !c.stopping.Load(); <-pace.C {
				a := ask.attempt(context.Background(), next(int(n.Add(1))))
				mine = append(mine, a)
				switch {
				case a.allowed():
					c.allowed.Add(1)
				case a.err == nil:
					c.denied.Add(1)
				case errors.Is(a.err, window.ErrUncertain):
					c.uncertain.Add(1)
				}
			}
			c.mu.Lock()
			c.all = append(c.all, mine...)
			c.mu.Unlock()
		})
	}
	return &c
}

// roundRobin returns a function for startLoad's next that cycles through the given events.
func roundRobin(events []string) func(int) string {
	return func(n int) string { return events[n%len(events)] }
}

// await waits until the limiter has allowed the given number of further attempts.
func (c *callerGroup) await(t *testing.T, more int64) {
	t.Helper()
	until := c.allowed.Load() + more
	redistest.Eventually(t, fmt.Sprint(more, " further attempts are allowed"), func() bool { return c.allowed.Load() >= until })
}

// end stops the callers, and returns all attempts.
func (c *callerGroup) end() []attempt {
	c.stopping.Store(true)
	c.callers.Wait()
	return c.all
}

// outcomes counts the outcomes of the attempts on an event. It also holds the number of units
// counted at the end, and the number of units allowed beyond the limit.
type outcomes struct{ asked, allowed, denied, uncertain, refused, counted, overLimit int64 }

// count returns the outcomes of attempts, by event.
func count(t *testing.T, attempts []attempt) map[string]*outcomes {
	t.Helper()
	of := map[string]*outcomes{}
	for _, a := range attempts {
		if of[a.event] == nil {
			of[a.event] = &outcomes{}
		}
		if !of[a.event].add(a) {
			t.Fatalf("%s: an error that does not say whether the attempt was counted, or is wrong about it: %v", a.event, a.err)
		}
	}
	return of
}

// add counts an attempt. It reports whether its error, if any, is one on which a caller can act. If
// an attempt never reached a server, its error must not be ErrUncertain.
func (n *outcomes) add(a attempt) bool {
	n.asked++
	switch {
	case a.allowed():
		n.allowed++
	case a.err == nil:
		n.denied++
	case errors.Is(a.err, window.ErrUncertain):
		n.uncertain++
		return !strings.Contains(a.err.Error(), "dial tcp")
	case errors.Is(a.err, window.ErrOutage), strings.Contains(a.err.Error(), "nothing was sent"):
		n.refused++
	default:
		return false
	}
	return true
}

// checkCounts compares all attempts with the final counts of a limiter with one limit of maxUnits
// in thirty days. At most the lost units of an event may be missing from its count, and may have
// been allowed again. checkCounts returns the sum over all events.
func checkCounts(t *testing.T, l limiter, maxUnits int64, attempts []attempt, lost map[string]int64) (sum outcomes) {
	t.Helper()
	for event, n := range count(t, attempts) {
		n.counted, n.overLimit = maxUnits-freeUnits(t, l, event), max(0, n.allowed-maxUnits)
		if n.asked != n.allowed+n.denied+n.uncertain+n.refused {
			t.Errorf("%s: not every attempt is accounted for: %+v", event, *n)
		}
		if n.counted < n.allowed-lost[event] || n.counted > n.allowed+n.uncertain || n.allowed > maxUnits+lost[event] {
			t.Errorf("%s: of %d units, %d lost, %+v", event, maxUnits, lost[event], *n)
		}
		if m, mixed := l.(*faulttest.Mixed); mixed && m.Left(t.Context(), event) != 0 {
			t.Errorf("%s: other calls have left %d units", event, m.Left(t.Context(), event))
		}
		sum.asked += n.asked
		sum.allowed += n.allowed
		sum.denied += n.denied
		sum.uncertain += n.uncertain
		sum.refused += n.refused
		sum.counted += n.counted
		sum.overLimit += n.overLimit
	}
	return sum
}

// freeUnits returns how many units of an event the limiter still allows. After a fault, the circuit
// breaker for the event's slot can stay open for up to a second.
func freeUnits(t *testing.T, l limiter, event string) int64 {
	t.Helper()
	var d window.Decision
	redistest.Eventually(t, "Peek succeeds for "+event, func() bool {
		var err error
		if d, err = l.Peek(t.Context(), event); err != nil && !errors.Is(err, window.ErrOutage) {
			t.Fatal(err)
		}
		return err == nil
	})
	if d.Allowed {
		return d.Remaining + 1
	}
	return 0
}

// exhaust sends attempts on each event until it is denied.
func exhaust(t *testing.T, l limiter, events []string) (attempts []attempt) {
	t.Helper()
	var mu sync.Mutex
	var callers sync.WaitGroup
	late := time.Now().Add(time.Minute)
	for part := range slices.Chunk(events, (len(events)+15)/16) {
		callers.Go(func() {
			pace := time.NewTicker(time.Millisecond / 2)
			defer pace.Stop()
			for _, event := range part {
				for denied := false; !denied; <-pace.C {
					a := allowFunc(l.Allow).attempt(context.Background(), event)
					mu.Lock()
					attempts = append(attempts, a)
					mu.Unlock()
					denied = a.err == nil && !a.decision.Allowed
					if !denied && time.Now().After(late) {
						t.Errorf("%s is not denied after a minute: %v", event, a.err)
						return
					}
				}
			}
		})
	}
	callers.Wait()
	return attempts
}

// checkNoErrors fails the test if any attempt returned an error.
func checkNoErrors(t *testing.T, attempts []attempt) {
	t.Helper()
	failed := slices.DeleteFunc(slices.Clone(attempts), func(a attempt) bool { return a.err == nil })
	if len(failed) > 0 {
		t.Errorf("%d of %d attempts failed; the first on %s after %v: %v", len(failed), len(attempts), failed[0].event, failed[0].took, failed[0].err)
	}
}

// settings holds those server settings that matter in an incident.
type settings struct {
	nodeTimeout time.Duration // cluster-node-timeout
	coverage    string        // cluster-require-full-coverage: whether the other masters refuse too
	replicas    string        // min-replicas-to-write: a master with fewer replicas refuses writes
}

// set applies the settings to all nodes until the test ends.
func (s settings) set(t *testing.T, nodes *redistest.Nodes) {
	t.Helper()
	configure := func(s settings) {
		onAll(t, nodes, "CONFIG", "SET", "cluster-node-timeout", fmt.Sprint(s.nodeTimeout.Milliseconds()), "cluster-require-full-coverage", s.coverage,
			"min-replicas-to-write", s.replicas, "min-replicas-max-lag", "2")
	}
	configure(s)
	t.Cleanup(func() { configure(defaultSettings) })
	t.Cleanup(func() { nodes.Heal(t) })
}

// shardEvents holds events of each shard.
var shardEvents = someEvents(20)

// someEvents returns the given number of events for each shard.
func someEvents(each int) (of [3][]string) {
	for n := 0; len(of[0]) < each || len(of[1]) < each || len(of[2]) < each; n++ {
		event := fmt.Sprint("198.51.100.", n)
		if shard := slotOf(event) * 3 / 16384; len(of[shard]) < each {
			of[shard] = append(of[shard], event)
		}
	}
	return of
}

// mustAllow takes n units, which the limiter must allow.
func mustAllow(t *testing.T, l limiter, event string, n int) {
	t.Helper()
	for range n {
		if d, err := l.Allow(t.Context(), event); err != nil || !d.Allowed {
			t.Fatalf("%s: %+v %v", event, d, err)
		}
	}
}

// The settings used in incidents, and the defaults.
var (
	defaultSettings  = settings{5 * time.Second, "yes", "0"}
	shortNodeTimeout = settings{1500 * time.Millisecond, "yes", "0"}
	noCoverage       = settings{1500 * time.Millisecond, "no", "0"}
	replicaRequired  = settings{5 * time.Second, "no", "1"}
)

const (
	callers     = 16          // per kind of limiter
	timeout     = time.Second // for each call, while masters fail
	failedShard = 0           // the index of the shard that loses its master
)

// startTimers starts plain timers with which a test compares how long calls take.
func startTimers() *redistest.Control { return redistest.Timers(2*callers, timeout) }

func pageOnKeys() string { return string(must(os.ReadFile("../docs/keys.md"))) }

// userRule returns the arguments of ACL SETUSER given in docs/keys.md.
func userRule(t *testing.T) []string {
	t.Helper()
	rule := regexp.MustCompile(`(?m)^ACL SETUSER (limiter .*>password .*~login:\* .*)$`).FindStringSubmatch(pageOnKeys())
	if rule == nil {
		t.Fatal("docs/keys.md has no rule for a user")
	}
	return strings.Fields(rule[1])
}

// checkDenied checks that s did not deny any command or key, except CLIENT SETINFO. rueidis uses
// that to name each connection, and ignores the error. Redis 6 logs the command as client.
func checkDenied(t *testing.T, s *redistest.Server) {
	t.Helper()
	for _, entry := range must(s.Do(t.Context(), "ACL", "LOG").ToArray()) {
		object := must(entry.AsMap())["object"]
		if denied := must(object.ToString()); denied != "client|setinfo" && denied != "client" {
			t.Errorf("%s denied %s", s.Addr(), denied)
		}
	}
}

// onAll sends a command to all nodes.
func onAll(t *testing.T, nodes *redistest.Nodes, command ...string) {
	t.Helper()
	for _, s := range nodes.All {
		if err := s.Do(context.Background(), command...).Error(); err != nil {
			t.Fatalf("%q: %v", command, err)
		}
	}
}

// movedSlots lists the slots that move, one from each master.
var movedSlots = []int{100, 6000, 12_000}

// moveSlots moves the slots to the next master and back, as often as given.
func moveSlots(t *testing.T, nodes *redistest.Nodes, times int) {
	t.Helper()
	for range times {
		for _, slot := range movedSlots {
			moveSlot(t, nodes, slot)
		}
	}
}

// moveSlot moves a slot to the next master and back.
func moveSlot(t *testing.T, nodes *redistest.Nodes, slot int) {
	t.Helper()
	home := nodes.MasterOf(t, slot)
	nodes.Move(t, slot, nodes.MasterOf(t, (slot+16384/3)%16384))
	nodes.Move(t, slot, home)
}

// askRedirects returns how often nodes redirected a call with ASK, which they do only while a slot
// moves.
func askRedirects(t *testing.T, nodes *redistest.Nodes) string {
	t.Helper()
	var all []string
	for _, s := range nodes.All {
		all = append(all, regexp.MustCompile(`errorstat_ASK:count=\d+`).FindString(must(s.Do(t.Context(), "INFO", "errorstats").ToString())))
	}
	return fmt.Sprint(all)
}

// knownAndNew returns a function for startLoad's next that uses events in the moving slots: a few
// recurring events and, every tenth time, a new one.
func knownAndNew() func(n int) string {
	known, fresh := movedEvents()
	return func(n int) string {
		if n%10 == 0 && n/10 < len(fresh) {
			return fresh[n/10]
		}
		return known[n%len(known)]
	}
}

// movedEvents returns known and new events in the moving slots.
var movedEvents = sync.OnceValues(func() (known, fresh []string) { return eventsOf("known", 10), eventsOf("new", 700) })

// eventsOf returns the given number of events in each moving slot. The slots alternate.
func eventsOf(name string, each int) (all []string) {
	of := map[int][]string{}
	for n, full := 0, 0; full < len(movedSlots); n++ {
		event := name + "-" + strconv.Itoa(n)
		slot := slotOf(event)
		if slices.Contains(movedSlots, slot) && len(of[slot]) < each {
			of[slot] = append(of[slot], event)
			if len(of[slot]) == each {
				full++
			}
		}
	}
	for i := range each {
		for _, slot := range movedSlots {
			all = append(all, of[slot][i])
		}
	}
	return all
}
