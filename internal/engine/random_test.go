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

// A tally counts how the attempts on each event ended.
type tally struct {
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

// record counts how an attempt ended.
func (a *tally) record(t *testing.T, ctx context.Context, event string, r Reply, err error) {
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

// A chaos injects random faults into a server, while callers come and leave.
type chaos struct {
	*server
	rng     *rand.Rand
	limiter *Limiter
	tally   tally
	callers sync.WaitGroup
}

// TestRandomFaults checks two things under random faults. No call takes longer than it may. And the
// tally of all attempts is right: the server executed all answered attempts, at most the uncertain
// ones besides, and no others.
func TestRandomFaults(t *testing.T) {
	var all entry
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, s *server) {
				st := &chaos{server: s, rng: rand.New(rand.NewPCG(seed, 2)), tally: tally{events: map[string]*entry{}}}
				merging := mergings[seed%3]
				st.limiter = limiter(t, s.client(t, alwaysPipelining(seed%2 == 0), ringScale(9)), merging.change, func(c *Config) {
					c.Timeout = 300 * time.Millisecond
					if seed%5 == 0 {
						c.Timeout = -1
					}
				})
				if seed%7 == 0 {
					withoutHash(st.limiter)
				}
				st.runCallers(t)
				st.heal()
				st.callers.Wait()
				pass(time.Minute)
				st.check(t)
				for _, e := range st.tally.events {
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

// runCallers starts callers for three seconds, under ever new faults.
func (s *chaos) runCallers(t *testing.T) {
	t.Helper()
	for step := range 100 {
		if step%10 == 0 {
			s.heal() // at the latest: see ringScale
		}
		s.injectFault()
		for range s.rng.IntN(20) {
			s.call(t)
		}
		pass(time.Duration(s.rng.IntN(60)) * time.Millisecond)
	}
}

// faults are the actions for some commands.
var faults = []action{
	{delay: time.Millisecond},
	{delay: 50 * time.Millisecond},
	{cut: true},
	{lose: true},
	{hang: true},
	{silent: true},
	refusal("LOADING"), refusal("TRYAGAIN"), refusal("NOSCRIPT"), refusal("CLUSTERDOWN"), refusal("ERR broken"), refusal("WRONGTYPE key"),
	{reply: "_"},
}

// injectFault changes what the server does with commands and dials. Mostly it changes nothing.
func (s *chaos) injectFault() {
	bad := faults[s.rng.IntN(len(faults))]
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
		s.next(append(make([]action, s.rng.IntN(5)), bad)...)
	}
}

// heal ends all faults. Connections that hang break.
func (s *chaos) heal() {
	s.next()
	s.always(action{})
	s.slowDials(0)
	s.revive()
	s.cut()
}

// call starts a caller that asks about one event or several, and may leave.
func (s *chaos) call(t *testing.T) {
	t.Helper()
	within := time.Duration(s.rng.IntN(400)) * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), within)
	if s.rng.IntN(3) == 0 { // leaves without a deadline
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
			s.tally.record(t, ctx, events[0], r, err)
		} else {
			for i, a := range s.limiter.AttemptEach(ctx, events) {
				s.tally.record(t, ctx, events[i], a.Reply, a.Err)
			}
		}
		if took := time.Since(began); took > within {
			t.Errorf("%v instead of %v", took, within)
		}
	})
}

// check compares the tally with what the server executed.
func (s *chaos) check(t *testing.T) {
	t.Helper()
	synctest.Wait()
	for event, e := range s.tally.events {
		c := s.counter(s.limiter.Key(event))
		if e.attempts != e.allowed+e.denied+e.uncertain+e.refused {
			t.Errorf("%s: the tally is wrong: %+v", event, *e)
		}
		if least := e.allowed + e.denied; c.attempts < least || c.attempts > least+e.uncertain {
			t.Errorf("%s: %d were executed: %+v", event, c.attempts, *e)
		}
		if !s.limiter.CountDenied && (c.used > 5 || int(c.used) < e.allowed || int(c.used) > e.allowed+e.uncertain) {
			t.Errorf("%s: %d units were counted: %+v", event, c.used, *e)
		}
	}
}
