package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

// TestHundredFailuresAnHour checks that no hour has more than 100 failures. For ten hours, 32
// attackers guess the password of one account, from many IP addresses, with solved challenges and
// with stolen cookies of many devices. The owner logs in from the same addresses and devices, and
// some attempts are cancelled. Meanwhile, slots move and connections break.
func TestHundredFailuresAnHour(t *testing.T) {
	if testing.Short() {
		t.Skip("it lasts ten hours of a fake clock")
	}
	wide := []window.Limit{window.PerHour(1_000_000)}
	for name, cfg := range map[string]login.Config{
		"the widest": {Address: wide, Pair: wide, Account: []window.Limit{window.PerHour(60)}, Streak: wide, Device: wide, Challenged: wideChallenged(window.PerHour(30))},
		"in steps": {
			Address: wide, Pair: wide, Account: []window.Limit{{Max: 10, Per: 10 * time.Minute}, window.PerDay(5000)}, Streak: wide, Device: wide,
			Challenged: wideChallenged(window.Limit{Max: 5, Per: 10 * time.Minute}, window.PerDay(5000)),
		},
		"default": {},
		"solvers": {Challenged: &login.Challenged{}},
	} {
		t.Run(name, func(t *testing.T) {
			nodes, faults := redistest.Replicated(t), &redistest.Faults{}
			s := &loginAttack{faults: faults, nodes: nodes, challenges: cfg.Challenged != nil}
			s.ms.Store(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC).UnixMilli())
			cfg.Name, cfg.Secret, cfg.Timeout = redistest.Key(t), []byte("sixteen bytes, or more"), time.Minute
			cfg.Now = s.now
			s.guard = must(login.New(window.On(nodes.NewClient(t, faults.Break)), cfg))
			for range 60 {
				s.burst(t, cfg.Name)
				s.ms.Add(rand.Int64N((20 * time.Minute).Milliseconds()))
			}
			most := s.mostInAnHour()
			t.Logf("%d passwords checked, %d failures, at most %d in an hour; %d logins of the owner, %d errors", s.checked.Load(), len(s.failures), most, s.succeeded.Load(), s.failed.Load())
			if most > 100 {
				t.Errorf("%d failures in an hour", most)
			}
			if enough := map[string]int{"the widest": 80, "in steps": 80, "default": 30, "solvers": 30}[name]; most < enough || s.succeeded.Load() < 50 || s.failed.Load() == 0 {
				t.Error("this test proves too little: too little happened")
			}
		})
	}
}

// wideChallenged returns limits for challenged attempts of which only the account's can be reached.
func wideChallenged(account ...window.Limit) *login.Challenged {
	wide := []window.Limit{window.PerHour(1_000_000)}
	return &login.Challenged{Address: wide, Pair: wide, Account: account, Streak: wide}
}

// loginAttack is an attack on a single account. Its clock stands still during each burst.
type loginAttack struct {
	guard  *login.Guard
	nodes  *redistest.Nodes
	faults *redistest.Faults
	ms     atomic.Int64 // the time shown by the clock

	challenges bool // whether attackers solve challenges

	checked, succeeded, failed atomic.Int64

	mu       sync.Mutex
	failures []time.Time
}

func (s *loginAttack) now() time.Time { return time.UnixMilli(s.ms.Load()) }

// burst sends many attempts at the same time, and then a steady flow, while slots of the account's
// keys move to another master and back.
func (s *loginAttack) burst(t *testing.T, name string) {
	var group sync.WaitGroup
	var over atomic.Bool
	for range 32 {
		group.Go(func() {
			for range 5 {
				s.attempt(t)
			}
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for ; !over.Load(); <-pace.C {
				s.attempt(t)
			}
		})
	}
	for _, key := range sample(sampleKeys(t, s.nodes, name), 2) {
		moveSlot(t, s.nodes, keys.Slot(key))
	}
	over.Store(true)
	group.Wait()
}

// sample returns n random keys that do not belong to IP addresses.
func sample(all []string, n int) []string {
	all = slices.DeleteFunc(all, func(key string) bool { return strings.Contains(key, ".address") })
	rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all[:min(n, len(all))]
}

// attempt makes an attempt, usually as an attacker and sometimes as the owner.
func (s *loginAttack) attempt(t *testing.T) {
	from := netip.AddrFrom4([4]byte{10, 0, byte(rand.IntN(256)), byte(rand.IntN(256))})
	var a *login.Attempt
	var err error
	switch dice := rand.IntN(6); {
	case dice == 0 && s.challenges:
		a, err = s.guard.BeginChallenged(t.Context(), "alice", from)
	case dice < 4:
		a, err = s.guard.Begin(t.Context(), "alice", from)
	default:
		a, err = s.guard.BeginKnown(t.Context(), "alice", from, fmt.Sprint("device ", rand.IntN(50)))
	}
	if err != nil {
		s.failed.Add(1)
	}
	if err == nil && a.Allowed {
		if s.checked.Add(1)%50 == 0 {
			s.faults.Cut()
		}
		s.end(t.Context(), a)
	}
}

// end ends an attempt. One in eight is the owner's and succeeds, one in eight is cancelled, and all
// others fail.
func (s *loginAttack) end(ctx context.Context, a *login.Attempt) {
	var err error
	switch rand.IntN(8) {
	case 0:
		err = a.Succeed(ctx)
		s.succeeded.Add(1)
	case 1:
		err = a.Cancel(ctx)
	default:
		s.mu.Lock()
		s.failures = append(s.failures, s.now())
		s.mu.Unlock()
	}
	if err != nil {
		s.failed.Add(1)
	}
}

// mostInAnHour returns the maximum number of failures in any interval of one hour.
func (s *loginAttack) mostInAnHour() (most int) {
	for i, from := range s.failures {
		n := 0
		for _, at := range s.failures[i:] {
			if at.Sub(from) < time.Hour {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
