package cluster_test

import (
	"context"
	"errors"
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
	each(t, func(t *testing.T, k kind) {
		const most = 100
		faults := &redistest.Faults{}
		l := k.of(t, redistest.Replicated(t).NewClient(t, faults.Break), months(most))
		for _, event := range slices.Concat(shardEvents[:]...) {
			must(l.Allow(t.Context(), event)) // connects, and brings the script
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
	each(t, func(t *testing.T, k kind) {
		const most = 100_000
		faults := &redistest.Faults{}
		l := k.of(t, redistest.Replicated(t).NewClient(t, faults.Break), months(most))
		crowd := load(16, l.Allow, inTurn(slices.Concat(shardEvents[:]...)))
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

// TestNobodyElsesDeadline: callers whose deadlines are too short fail alone, also with a client that has rueidis' own defaults.
func TestNobodyElsesDeadline(t *testing.T) {
	for name, pipelining := range map[string]bool{"always pipelining": true, "by default": false} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, k kind) { hasty(t, k, pipelining) })
		})
	}
}

func hasty(t *testing.T, k kind, pipelining bool) {
	const most = 100_000
	faults, all := &redistest.Faults{}, slices.Concat(shardEvents[:]...)
	client := redistest.Replicated(t).NewClient(t, func(o *rueidis.ClientOption) {
		faults.Break(o)
		o.AlwaysPipelining = pipelining
	})
	l := k.of(t, client, months(most))
	patient := load(16, l.Allow, inTurn(all))
	patient.await(t, 100)
	faults.Delay(5 * time.Millisecond)
	var failed []attempt
	var mu sync.Mutex
	var callers sync.WaitGroup
	for c := range 8 {
		callers.Go(func() {
			for n := range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
				a := asker(l.Allow).attempt(ctx, all[(c*50+n)%len(all)])
				cancel()
				mu.Lock()
				failed = append(failed, a)
				mu.Unlock()
			}
		})
	}
	callers.Wait()
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

// TestACL: the user that docs/redis.md describes may do what a limiter does, and nothing with other keys.
func TestACL(t *testing.T) {
	page := string(must(os.ReadFile("../docs/redis.md")))
	rule := regexp.MustCompile(`(?m)^ACL SETUSER (limiter .*>password .*~login:\* .*)$`).FindStringSubmatch(page)
	if rule == nil {
		t.Fatal("docs/redis.md has no rule for a user")
	}
	nodes := redistest.Replicated(t)
	for _, s := range nodes.All {
		must(s.Do(t.Context(), append([]string{"ACL", "SETUSER"}, strings.Fields(rule[1])...)...).ToString())
	}
	client := nodes.NewClient(t, func(o *rueidis.ClientOption) { o.Username, o.Password = "limiter", "password" })
	each(t, func(t *testing.T, k kind) {
		l := must(k.make(client, window.Config{Name: "login", Limits: []window.Limit{months(2)}}))
		other := must(k.make(client, window.Config{Name: "other", Limits: []window.Limit{months(2)}}))
		for _, events := range shardEvents {
			d := must(l.Allow(t.Context(), events[0]))
			must(l.Wait(t.Context(), events[0]))
			if err := l.Refund(t.Context(), events[0], d); err != nil || free(t, l, events[0]) != 1 {
				t.Error(err)
			}
			if err := l.Reset(t.Context(), events[0]); err != nil {
				t.Error(err)
			}
			if _, err := other.Allow(t.Context(), events[0]); !errors.Is(err, window.ErrOutage) || !strings.Contains(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "can't access") {
				t.Errorf("another limiter's keys: %v", err)
			}
		}
	})
}
