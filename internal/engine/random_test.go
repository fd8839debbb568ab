package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// An account says how many attempts ended how, on each event.
type account struct {
	mu     sync.Mutex
	events map[string]*entry
}

type entry struct{ attempts, allowed, denied, uncertain, refused int }

// add adds the numbers of another entry.
func (e *entry) add(other *entry) {
	e.attempts += other.attempts
	e.allowed += other.allowed
	e.denied += other.denied
	e.uncertain += other.uncertain
	e.refused += other.refused
}

// enter notes how an attempt ended.
func (a *account) enter(t *testing.T, ctx context.Context, event string, r Reply, err error) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.events[event]
	if e == nil {
		e = &entry{}
		a.events[event] = e
	}
	e.attempts++
	switch {
	case errors.Is(err, ErrUncertain):
		e.uncertain++
	case errors.Is(err, ErrOutage), err != nil && errors.Is(err, ctx.Err()), err != nil && strings.Contains(err.Error(), "WRONGTYPE"):
		e.refused++
	case err != nil:
		t.Errorf("%s: %v", event, err)
	case r.Allowed:
		e.allowed++
	default:
		e.denied++
	}
}

// A storm is a server in trouble, and callers who leave.
type storm struct {
	*server
	rng     *rand.Rand
	limiter *Limiter
	account account
	callers sync.WaitGroup
}

// TestRandomTroubles checks that whatever happens, no call takes longer than it may, and the account of all attempts is right: the server
// executed what was answered, at most what is uncertain beside it, and nothing else.
func TestRandomTroubles(t *testing.T) {
	var all entry
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, s *server) {
				st := &storm{server: s, rng: rand.New(rand.NewPCG(seed, 2)), account: account{events: map[string]*entry{}}}
				merging := mergings[seed%3]
				st.limiter = limiter(t, s.client(t, alwaysPipelining(seed%2 == 0), ring(9)), merging.change, func(c *Config) {
					c.Timeout = 300 * time.Millisecond
					if seed%5 == 0 {
						c.Timeout = -1
					}
				})
				if seed%7 == 0 {
					withoutHash(st.limiter)
				}
				st.rage(t)
				st.calm()
				st.callers.Wait()
				pass(time.Minute)
				st.check(t)
				for _, e := range st.account.events {
					all.add(e)
				}
				wantIdle(t, st.limiter)
				mustAllow(t, st.limiter, "after")
			})
		})
	}
	t.Logf("%+v", all)
	if all.allowed == 0 || all.denied == 0 || all.uncertain == 0 || all.refused == 0 {
		t.Errorf("a poor test: %+v", all)
	}
}

// rage starts callers for three seconds, in ever new troubles.
func (s *storm) rage(t *testing.T) {
	t.Helper()
	for step := range 100 {
		if step%10 == 0 {
			s.calm() // at the latest: see ring
		}
		s.trouble()
		for range s.rng.IntN(20) {
			s.call(t)
		}
		pass(time.Duration(s.rng.IntN(60)) * time.Millisecond)
	}
}

// badFates are those of some commands.
var badFates = []fate{
	{delay: time.Millisecond},
	{delay: 50 * time.Millisecond},
	{cut: true},
	{lose: true},
	{hang: true},
	{silent: true},
	refusal("LOADING"), refusal("TRYAGAIN"), refusal("NOSCRIPT"), refusal("CLUSTERDOWN"), refusal("ERR broken"), refusal("WRONGTYPE key"),
	{reply: "_"},
}

// trouble changes what the server does with commands and dials, mostly for the better.
func (s *storm) trouble() {
	bad := badFates[s.rng.IntN(len(badFates))]
	switch s.rng.IntN(50) {
	case 0:
		s.die()
	case 1:
		s.cut()
	case 2:
		s.forgetScript()
	case 3:
		s.slowDials(time.Duration(s.rng.IntN(100)) * time.Millisecond)
	case 4:
		s.always(bad)
	case 5, 6, 7, 8, 9, 10:
		s.next(append(make([]fate, s.rng.IntN(5)), bad)...)
	}
}

// calm ends all trouble. Connections that hang break.
func (s *storm) calm() {
	s.next()
	s.always(fate{})
	s.slowDials(0)
	s.revive()
	s.cut()
}

// call starts a caller that asks about one event or several, and may leave.
func (s *storm) call(t *testing.T) {
	t.Helper()
	within := time.Duration(s.rng.IntN(400)) * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), within)
	if s.rng.IntN(3) == 0 { // this one leaves without a deadline
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(within, cancel)
	}
	if s.limiter.Timeout > 0 {
		within = min(within, s.limiter.Timeout)
	}
	events := make([]string, 1+s.rng.IntN(3)/2*s.rng.IntN(6))
	for i := range events {
		events[i] = fmt.Sprint("event ", s.rng.IntN(60))
	}
	s.callers.Go(func() {
		defer cancel()
		began := time.Now()
		if len(events) == 1 {
			r, err := s.limiter.Decide(ctx, s.limiter.Attempt(), events[0], 1)
			s.account.enter(t, ctx, events[0], r, err)
		} else {
			for i, a := range s.limiter.AttemptEach(ctx, events) {
				s.account.enter(t, ctx, events[i], a.Reply, a.Err)
			}
		}
		if took := time.Since(began); took > within {
			t.Errorf("%v instead of %v", took, within)
		}
	})
}

// check compares the account with what the server executed.
func (s *storm) check(t *testing.T) {
	t.Helper()
	synctest.Wait()
	for event, e := range s.account.events {
		c := s.counter(s.limiter.Key(event))
		if e.attempts != e.allowed+e.denied+e.uncertain+e.refused {
			t.Errorf("%s: the account is wrong: %+v", event, *e)
		}
		if least := e.allowed + e.denied; c.attempts < least || c.attempts > least+e.uncertain {
			t.Errorf("%s: %d were executed: %+v", event, c.attempts, *e)
		}
		if !s.limiter.CountDenied && (c.used > 5 || int(c.used) < e.allowed || int(c.used) > e.allowed+e.uncertain) {
			t.Errorf("%s: %d units were counted: %+v", event, c.used, *e)
		}
	}
}
