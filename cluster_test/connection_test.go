package cluster_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestLostReply: the connection breaks after the command was sent and before its reply arrived. The caller learns that, and the attempt
// is counted once.
func TestLostReply(t *testing.T) {
	eachClient(t, func(t *testing.T, k kind) {
		const most = 100
		faults := &redistest.Faults{}
		l := k.of(t, redistest.Replicated(t).Options(faults.Break), months(most))
		for _, event := range slices.Concat(shardEvents[:]...) {
			if _, err := l.Allow(t.Context(), event); err != nil { // connects, and brings the script
				t.Fatal(err)
			}
			faults.LoseReply("EVALSHA")
			if d, err := l.Allow(t.Context(), event); !errors.Is(err, window.ErrUncertain) {
				t.Fatalf("%s: %+v %v", event, d, err)
			}
			if used := most - free(t, l, event); used != 2 {
				t.Errorf("%s: %d units are counted", event, used)
			}
		}
	})
}

// TestCutConnections cuts all connections again and again under load.
func TestCutConnections(t *testing.T) {
	eachClient(t, func(t *testing.T, k kind) {
		const most = 100_000
		faults := &redistest.Faults{}
		l := k.of(t, redistest.Replicated(t).Options(faults.Break), months(most))
		crowd := load(t, callers, l.Allow, inTurn(slices.Concat(shardEvents[:]...)))
		for range 30 {
			crowd.await(t, 200)
			faults.Cut()
		}
		sum := settle(t, l, most, crowd.end(), nil)
		t.Logf("%+v", sum)
		if sum.uncertain == 0 {
			t.Error("a poor test: no connection was cut in the middle of a call")
		}
	})
}

// TestHotEventsAreAccountedFor: many callers ask about one event of each shard, so that their attempts merge. Connections are cut or a reply
// is lost, again and again, and every fourth caller leaves at a random moment.
func TestHotEventsAreAccountedFor(t *testing.T) {
	eachClient(t, func(t *testing.T, k kind) {
		const most = 3000
		faults, hot := &redistest.Faults{}, []string{shardEvents[0][0], shardEvents[1][0], shardEvents[2][0]}
		l := k.of(t, redistest.Replicated(t).Options(faults.Break), months(most))
		crowd := load(t, 128, leaving(l.Allow), inTurn(hot))
		for n := range 20 {
			crowd.await(t, 100)
			if n%2 == 0 {
				faults.Cut()
			} else {
				faults.LoseReply("EVALSHA")
			}
		}
		sum := settle(t, l, most, slices.Concat(crowd.end(), drain(t, l, hot)), nil)
		t.Logf("%+v", sum)
		if sum.uncertain == 0 || sum.denied == 0 {
			t.Error("a poor test: nothing was uncertain, or nothing denied")
		}
	})
}

// leaving has every fourth caller leave at a random moment.
func leaving(ask asker) asker {
	return func(ctx context.Context, event string) (window.Decision, error) {
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		if rand.IntN(4) == 0 {
			defer time.AfterFunc(rand.N(2*time.Millisecond), leave).Stop()
		}
		return ask(ctx, event)
	}
}

// TestNobodyElsesDeadline: callers whose deadlines are too short fail alone, also with a client that has rueidis' own defaults.
func TestNobodyElsesDeadline(t *testing.T) {
	for name, pipelining := range map[string]bool{"always pipelining": true, "by default": false} {
		t.Run(name, func(t *testing.T) {
			eachClient(t, func(t *testing.T, k kind) { hasty(t, k, pipelining) })
		})
	}
}

func hasty(t *testing.T, k kind, pipelining bool) {
	const most = 100_000
	faults, all := &redistest.Faults{}, slices.Concat(shardEvents[:]...)
	l := k.of(t, redistest.Replicated(t).Options(func(o *rueidis.ClientOption) {
		faults.Break(o)
		o.AlwaysPipelining = pipelining
	}), months(most))
	patient := load(t, callers, l.Allow, inTurn(all))
	patient.await(t, 100)
	faults.Delay(100 * time.Millisecond)
	var failed []attempt
	var mu sync.Mutex
	var group sync.WaitGroup
	for c := range 8 {
		group.Go(func() {
			for n := range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				a := asker(l.Allow).attempt(ctx, all[(c*20+n)%len(all)])
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
		if !errors.Is(a.err, context.DeadlineExceeded) {
			t.Errorf("a hasty caller: %+v %v", a.decision, a.err)
		}
	}
	attempts := patient.end()
	clean(t, attempts)
	t.Logf("%+v", settle(t, l, most, append(attempts, failed...), nil))
}

// TestFirstOfAConnection: the first call of a connection has a deadline that is too short, and the one that follows it is answered all
// the same. rueidis reads and writes such calls by themselves, and sets the deadline on the connection, if it is told of one.
func TestFirstOfAConnection(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		nodes := redistest.Replicated(t)
		for n, event := range slices.Concat(shardEvents[0][:3], shardEvents[1][:3], shardEvents[2][:3]) {
			t.Run(event, func(t *testing.T) {
				t.Parallel()
				faults := &redistest.Faults{}
				client := nodes.NewClient(t, func(o *rueidis.ClientOption) {
					faults.Break(o)
					o.AlwaysPipelining = false
				})
				if n%2 == 0 { // the connection is there, or not yet
					if err := client.Do(t.Context(), client.B().Exists().Key(k.key("x", event)).Build()).Error(); err != nil {
						t.Fatal(err)
					}
				}
				l := must(k.make(client, window.Config{Name: redistest.Key(t), Limits: []window.Limit{months(100)}, Timeout: 10 * time.Second}))
				faults.Delay(200 * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				var hasty error
				var group sync.WaitGroup
				group.Go(func() { _, hasty = l.Allow(ctx, event) })
				<-time.After(20 * time.Millisecond) // the hasty caller is first
				if _, err := l.Allow(t.Context(), event); err != nil {
					t.Errorf("%s, after a hasty caller: %v", event, err)
				}
				group.Wait()
				cancel()
				if !errors.Is(hasty, context.DeadlineExceeded) {
					t.Errorf("%s, a hasty caller: %v", event, hasty)
				}
			})
		}
	})
}

// TestACL: the user that docs/keys.md describes may do what a limiter does, also while slots move, and nothing with other keys.
func TestACL(t *testing.T) {
	nodes := redistest.Replicated(t)
	onAll(t, nodes, append([]string{"ACL", "SETUSER"}, userRule(t)...)...)
	onAll(t, nodes, "ACL", "LOG", "RESET")
	client := nodes.NewClient(t, func(o *rueidis.ClientOption) { o.Username, o.Password = "limiter", "password" })
	each(t, func(t *testing.T, k kind) {
		const most = 300
		l := must(k.make(client, window.Config{Name: "login", Limits: []window.Limit{months(most)}}))
		crowd := load(t, callers, l.Allow, knownAndNew())
		thereAndBack(t, nodes, redistest.UnlessShort(2, 1))
		attempts := crowd.end()
		clean(t, attempts)
		settle(t, l, most, attempts, nil)
		for _, events := range shardEvents {
			d, err1 := l.Allow(t.Context(), events[0])
			_, err2 := l.Wait(t.Context(), events[0])
			err3 := l.Refund(t.Context(), events[0], d)
			if err := errors.Join(err1, err2, err3); err != nil || free(t, l, events[0]) != most-1 {
				t.Errorf("%d units are free, %v", free(t, l, events[0]), err)
			}
			if err := l.Reset(t.Context(), events[0]); err != nil {
				t.Error(err)
			}
		}
		for _, s := range nodes.All {
			for _, entry := range must(s.Do(t.Context(), "ACL", "LOG").ToArray()) {
				denied := object(t, entry)
				if denied != "client|setinfo" { // rueidis only says its name with it
					t.Errorf("%s denied %s", s.Addr(), denied)
				}
			}
		}
	})
	each(t, func(t *testing.T, k kind) { forbidden(t, k, nodes, client) })
	more := regexp.MustCompile("for a `DenialCache`, `([^`]*)`").FindStringSubmatch(pageOnKeys())
	onAll(t, nodes, append([]string{"ACL", "SETUSER", "limiter"}, strings.Fields(more[1])...)...)
	each(t, func(t *testing.T, k kind) { remembers(t, k, nodes, client) })
	for _, command := range [][]string{{"FLUSHALL"}, {"KEYS", "*"}, {"CONFIG", "GET", "*"}, {"PUBLISH", "c", "m"}, {"CLUSTER", "RESET"}} {
		err := client.Do(t.Context(), client.B().Arbitrary(command...).Build()).Error()
		if err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("%q: %v", command, err)
		}
	}
}

func pageOnKeys() string { return string(must(os.ReadFile("../docs/keys.md"))) }

// userRule is what docs/keys.md says of a user, after ACL SETUSER.
func userRule(t *testing.T) []string {
	t.Helper()
	rule := regexp.MustCompile(`(?m)^ACL SETUSER (limiter .*>password .*~login:\* .*)$`).FindStringSubmatch(pageOnKeys())
	if rule == nil {
		t.Fatal("docs/keys.md has no rule for a user")
	}
	return strings.Fields(rule[1])
}

// remembers has the user be denied by what the client knows.
func remembers(t *testing.T, k kind, nodes *redistest.Nodes, client rueidis.Client) {
	t.Helper()
	onAll(t, nodes, "ACL", "LOG", "RESET")
	l := must(k.make(client, window.Config{Name: "login", Limits: []window.Limit{months(1)}, DenialCache: 10}))
	for n := range 5 {
		if d := must(l.Allow(t.Context(), "remembered "+k.name)); d.Allowed != (n == 0) {
			t.Errorf("%d: %+v", n, d)
		}
	}
	for _, s := range nodes.All {
		if log := must(s.Do(t.Context(), "ACL", "LOG").ToArray()); len(log) > 0 {
			t.Errorf("%s denied %s", s.Addr(), object(t, log[0]))
		}
	}
}

// object is what an entry of ACL LOG says was denied.
func object(t *testing.T, entry rueidis.RedisMessage) string {
	t.Helper()
	fields, err := entry.AsMap()
	if err != nil {
		t.Fatal(err)
	}
	what := fields["object"]
	denied, err := what.ToString()
	if err != nil {
		t.Fatal(err)
	}
	return denied
}

// forbidden is what the user may not do: the caller learns that nothing was counted, whichever command it is.
func forbidden(t *testing.T, k kind, nodes *redistest.Nodes, client rueidis.Client) {
	t.Helper()
	refused := func(name string) {
		t.Helper()
		l := must(k.make(client, window.Config{Name: name, Limits: []window.Limit{months(2)}}))
		d, err := l.Allow(t.Context(), shardEvents[victim][1])
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

// onAll sends a command to all nodes.
func onAll(t *testing.T, nodes *redistest.Nodes, command ...string) {
	t.Helper()
	for _, s := range nodes.All {
		if err := s.Do(context.Background(), command...).Error(); err != nil {
			t.Fatalf("%q: %v", command, err)
		}
	}
}
