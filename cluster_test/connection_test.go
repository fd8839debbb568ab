package cluster_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestLostReply breaks the connection after a command was sent but before its reply arrived. The
// caller must get ErrUncertain, and the attempt must be counted once.
func TestLostReply(t *testing.T) {
	eachClient(t, func(t *testing.T, k kind) {
		t.Parallel()
		const maxUnits = 100
		faults := &redistest.Faults{}
		l := k.newLimiter(t, redistest.Replicated(t).Options(faults.Break), perMonth(maxUnits))
		events := someEvents(redistest.UnlessShort(20, 5))
		for _, event := range slices.Concat(events[:]...) {
			if _, err := l.Allow(t.Context(), event); err != nil { // connects and loads the script
				t.Fatal(err)
			}
			faults.LoseReply("EVALSHA")
			if d, err := l.Allow(t.Context(), event); !errors.Is(err, window.ErrUncertain) {
				t.Fatalf("%s: %+v %v", event, d, err)
			}
			if used := maxUnits - freeUnits(t, l, event); used != 2 {
				t.Errorf("%s: %d units are counted", event, used)
			}
		}
	})
}

// TestHotEventsAreAccountedFor checks that all attempts are accounted for if many callers use one
// event per shard, so that their attempts are merged. Meanwhile, connections are cut, replies are
// lost, and every fourth caller cancels at a random moment.
func TestHotEventsAreAccountedFor(t *testing.T) {
	eachClient(t, func(t *testing.T, k kind) {
		t.Parallel()
		const maxUnits = 3000
		faults, hot := &redistest.Faults{}, []string{shardEvents[0][0], shardEvents[1][0], shardEvents[2][0]}
		l := k.newLimiter(t, redistest.Replicated(t).Options(faults.Break), perMonth(maxUnits))
		group := startLoad(t, 128, cancelSome(l.Allow), roundRobin(hot))
		for n := range 20 {
			group.await(t, 100)
			if n%2 == 0 {
				faults.Cut()
			} else {
				faults.LoseReply("EVALSHA")
			}
		}
		sum := checkCounts(t, l, maxUnits, slices.Concat(group.end(), exhaust(t, l, hot)), nil)
		t.Logf("%+v", sum)
		if sum.uncertain == 0 || sum.denied == 0 {
			t.Error("this test proves too little: nothing was uncertain, or nothing denied")
		}
	})
}

// cancelSome returns an allowFunc that cancels every fourth call at a random moment.
func cancelSome(ask allowFunc) allowFunc {
	return func(ctx context.Context, event string) (window.Decision, error) {
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		if rand.IntN(4) == 0 {
			defer time.AfterFunc(rand.N(2*time.Millisecond), leave).Stop()
		}
		return ask(ctx, event)
	}
}

// TestNobodyElsesDeadline checks that callers whose deadlines are too short do not cause errors for
// other callers, even with rueidis's default options.
func TestNobodyElsesDeadline(t *testing.T) {
	for name, pipelining := range map[string]bool{"always pipelining": true, "by default": false} {
		t.Run(name, func(t *testing.T) {
			eachClient(t, func(t *testing.T, k kind) { shortDeadlines(t, k, pipelining) })
		})
	}
}

// shortDeadlines sends attempts whose deadlines are too short, along with others that have no
// deadline.
func shortDeadlines(t *testing.T, k kind, pipelining bool) {
	faults, all := &redistest.Faults{}, slices.Concat(shardEvents[:]...)
	l := k.newLimiter(t, redistest.Replicated(t).Options(func(o *rueidis.ClientOption) {
		faults.Break(o)
		o.AlwaysPipelining = pipelining
	}), perMonth(neverReached))
	patient := startLoad(t, callers, l.Allow, roundRobin(all))
	patient.await(t, 100)
	const delay = 100 * time.Millisecond
	faults.Delay(delay)
	var failed []attempt
	var mu sync.Mutex
	var group sync.WaitGroup
	for c := range 8 {
		group.Go(func() {
			for n := range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				a := allowFunc(l.Allow).attempt(ctx, all[(c*20+n)%len(all)])
				cancel()
				mu.Lock()
				failed = append(failed, a)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	faults.Delay(0)
	for _, a := range failed {
		if !errors.Is(a.err, context.DeadlineExceeded) && (a.err != nil || a.took < delay) { // a busy machine can be late
			t.Errorf("a caller with a short deadline, after %v: %+v %v", a.took, a.decision, a.err)
		}
	}
	attempts := patient.end()
	checkNoErrors(t, attempts)
	t.Logf("%+v", checkCounts(t, l, neverReached, append(attempts, failed...), nil))
}

// TestACL checks that the user in docs/keys.md may do everything that a limiter does, even while
// slots move, but cannot access other keys.
func TestACL(t *testing.T) {
	nodes := redistest.Replicated(t)
	onAll(t, nodes, append([]string{"ACL", "SETUSER"}, userRule(t)...)...)
	onAll(t, nodes, "ACL", "LOG", "RESET")
	client := nodes.NewClient(t, func(o *rueidis.ClientOption) { o.Username, o.Password = "limiter", "password" })
	each(t, func(t *testing.T, k kind) {
		const maxUnits = 300
		l := must(k.newOnClient(client, window.Config{Name: "login", Limits: []window.Limit{perMonth(maxUnits)}}))
		group := startLoad(t, callers, l.Allow, knownAndNew())
		moveSlots(t, nodes, redistest.UnlessShort(2, 1))
		attempts := group.end()
		checkNoErrors(t, attempts)
		checkCounts(t, l, maxUnits, attempts, nil)
		for _, events := range shardEvents {
			d, err1 := l.Allow(t.Context(), events[0])
			_, err2 := l.Allow(t.Context(), events[0])
			err3 := l.Refund(t.Context(), events[0], d)
			if err := errors.Join(err1, err2, err3); err != nil || freeUnits(t, l, events[0]) != maxUnits-1 {
				t.Errorf("%d units are free, %v", freeUnits(t, l, events[0]), err)
			}
			if err := l.Reset(t.Context(), events[0]); err != nil {
				t.Error(err)
			}
		}
		for _, s := range nodes.All {
			checkDenied(t, s)
		}
	})
	each(t, func(t *testing.T, k kind) { checkForbidden(t, k, nodes, client) })
	commands := regexp.MustCompile("- For `inflight`.*, add `([^`]*)`").FindStringSubmatch(pageOnKeys())
	onAll(t, nodes, append([]string{"ACL", "SETUSER", "limiter"}, strings.Fields(commands[1])...)...)
	checkInFlight(t, nodes, client)
	for _, command := range [][]string{{"FLUSHALL"}, {"KEYS", "*"}, {"CONFIG", "GET", "*"}, {"PUBLISH", "c", "m"}, {"CLUSTER", "RESET"}} {
		err := client.Do(t.Context(), client.B().Arbitrary(command...).Build()).Error()
		if err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("%q: %v", command, err)
		}
	}
}

// checkInFlight checks that inflight works for the user, without a denied command.
func checkInFlight(t *testing.T, nodes *redistest.Nodes, client rueidis.Client) {
	t.Helper()
	onAll(t, nodes, "ACL", "LOG", "RESET")
	l := must(inflight.New(window.On(client), inflight.Config{Name: "login", Max: 1, TTL: 3 * time.Second, Timeout: time.Second}))
	lease, _, err := l.TryAcquire(t.Context(), "e")
	if lease == nil || err != nil {
		t.Fatal(lease, err)
	}
	first := must(l.Inspect(t.Context(), "e")).Leases[0].Until
	redistest.Eventually(t, "the lease is renewed", func() bool { return must(l.Inspect(t.Context(), "e")).Leases[0].Until.After(first) })
	time.AfterFunc(time.Millisecond, func() { _ = lease.Release(t.Context()) })
	next := must(l.Acquire(t.Context(), "e"))
	if used := must(l.Inspect(t.Context(), "e")).Used; used != 1 || lease.Left() > 0 {
		t.Errorf("%d units are held, %v of the first lease are left", used, lease.Left())
	}
	if err := errors.Join(next.Release(t.Context()), l.Reset(t.Context(), "e")); err != nil {
		t.Error(err)
	}
	for _, s := range nodes.All {
		checkDenied(t, s)
	}
}

// checkForbidden checks that a caller gets ErrOutage if the user lacks a key pattern or a command.
func checkForbidden(t *testing.T, k kind, nodes *redistest.Nodes, client rueidis.Client) {
	t.Helper()
	refused := func(name string) {
		t.Helper()
		l := must(k.newOnClient(client, window.Config{Name: name, Limits: []window.Limit{perMonth(2)}}))
		d, err := l.Allow(t.Context(), shardEvents[failedShard][1])
		if !errors.Is(err, window.ErrOutage) || errors.Is(err, window.ErrUncertain) {
			t.Errorf("%+v %v", d, err)
		}
	}
	refused("other")
	for _, command := range []string{"get", "set", "time", "evalsha"} {
		onAll(t, nodes, "ACL", "SETUSER", "limiter", "-"+command)
		refused("login")
		onAll(t, nodes, "ACL", "SETUSER", "limiter", "+"+command)
	}
}
