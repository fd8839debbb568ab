package send

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/servertest"
)

// A tally counts the outcomes of the attempts for each event.
type tally struct {
	mu     sync.Mutex
	events map[string]*entry
}

type entry struct {
	attempts, answered, uncertain, refused int
	counts                                 map[int64]bool // the counts that callers got
}

// add adds the numbers in other to e.
func (e *entry) add(other *entry) {
	e.attempts += other.attempts
	e.answered += other.answered
	e.uncertain += other.uncertain
	e.refused += other.refused
}

// record counts the outcome of the attempt by c.
func (a *tally) record(t *testing.T, ctx context.Context, event string, c *attempt) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	e, err := a.events[event], c.err
	if e == nil {
		e = &entry{counts: map[int64]bool{}}
		a.events[event] = e
	}
	e.attempts++
	switch {
	case errors.Is(err, health.ErrUncertain):
		e.uncertain++
	case errors.Is(err, health.ErrOutage), err != nil && errors.Is(err, ctx.Err()), err != nil && strings.Contains(err.Error(), "WRONGTYPE"):
		e.refused++
	case err != nil:
		t.Errorf("%s: %v", event, err)
	case e.counts[c.count]:
		t.Errorf("%s: two callers got the count %d", event, c.count)
	default:
		e.answered++
		e.counts[c.count] = true
	}
}

// A chaos injects random faults into a server while callers come and leave.
type chaos struct {
	*servertest.Server
	rng     *rand.Rand
	line    *line
	tally   tally
	callers sync.WaitGroup
}

// TestRandomFaults checks two things under random faults. No call takes longer than it is allowed
// to. And the server has executed all attempts that were answered, possibly some of the uncertain
// ones, and no others.
func TestRandomFaults(t *testing.T) {
	var all entry
	shared, merged := 0, 0
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
				st := &chaos{Server: s, rng: rand.New(rand.NewPCG(seed, 2)), tally: tally{events: map[string]*entry{}}}
				st.line = newLine(t, s.Client(t, servertest.AlwaysPipelining(seed%2 == 0)), func(l *line) {
					l.Timeout = 300 * time.Millisecond
					if seed%5 == 0 {
						l.Timeout = -1
					}
				})
				s.SetKeys(servertest.Keys(seed % 3))
				st.runCallers(t)
				st.heal()
				st.callers.Wait()
				servertest.Pass(time.Minute)
				st.check(t)
				for _, e := range st.tally.events {
					all.add(e)
				}
				for _, c := range s.Ran() {
					shared += len(c.More)
					if len(c.More) > 0 && slices.ContainsFunc(append(c.More, c), func(key servertest.Command) bool { return key.Units > 1 }) {
						merged++
					}
				}
				wantIdle(t, st.line)
				mustCount(t, st.line, "after")
			})
		})
	}
	t.Logf("%+v; %d events shared the script call of another, and %d calls for several events had merged attempts", all, shared, merged)
	if all.answered == 0 || all.uncertain == 0 || all.refused == 0 || shared == 0 || merged == 0 {
		t.Errorf("weak test: %+v, %d, %d", all, shared, merged)
	}
}

// runCallers starts callers for three seconds while faults change constantly.
func (s *chaos) runCallers(t *testing.T) {
	t.Helper()
	for step := range 100 {
		if step%10 == 0 {
			s.heal() // at the latest; see RingScale
		}
		s.injectFault()
		for range s.rng.IntN(20) {
			s.call(t)
		}
		servertest.Pass(time.Duration(s.rng.IntN(60)) * time.Millisecond)
	}
}

// faults lists the actions that are applied to some commands.
var faults = []servertest.Action{
	{Delay: time.Millisecond},
	{Delay: 50 * time.Millisecond},
	{Cut: true},
	{Lose: true},
	{Hang: true},
	{Silent: true},
	servertest.Refusal("CROSSSLOT"), servertest.Refusal("NOPERM"),
	servertest.Refusal("LOADING"), servertest.Refusal("TRYAGAIN"), servertest.Refusal("NOSCRIPT"), servertest.Refusal("CLUSTERDOWN"), servertest.Refusal("ERR broken"), servertest.Refusal("WRONGTYPE key"),
	{Reply: "_"},
}

// injectFault changes what the server does with commands and dials. Usually it changes nothing.
func (s *chaos) injectFault() {
	bad := faults[s.rng.IntN(len(faults))]
	switch s.rng.IntN(50) {
	case 0:
		s.Die()
	case 1:
		s.Cut()
	case 2:
		s.ForgetScripts()
	case 3:
		s.SlowDials(time.Duration(s.rng.IntN(100)) * time.Millisecond)
	case 4:
		s.Always(bad)
	case 5, 6, 7, 8, 9, 10:
		s.Next(append(make([]servertest.Action, s.rng.IntN(5)), bad)...)
	}
}

// heal ends all faults, and breaks connections that hang.
func (s *chaos) heal() {
	s.Next()
	s.Always(servertest.Action{})
	s.SlowDials(0)
	s.Revive()
	s.Cut()
}

// call starts a caller that makes requests for one event or several, and that may leave.
func (s *chaos) call(t *testing.T) {
	t.Helper()
	within := time.Duration(s.rng.IntN(400)) * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), within)
	if s.rng.IntN(3) == 0 { // leaves without a deadline
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(within, cancel)
	}
	if s.line.Timeout > 0 {
		within = min(within, s.line.Timeout)
	}
	events := make([]string, 1+s.rng.IntN(3)/2*s.rng.IntN(6))
	for i := range events {
		events[i] = fmt.Sprint("event ", s.rng.IntN(60))
	}
	s.callers.Go(func() {
		defer cancel()
		began := time.Now()
		for i, c := range askMany(ctx, s.line, events) {
			s.tally.record(t, ctx, events[i], c)
		}
		if took := time.Since(began); took > within {
			t.Errorf("%v instead of %v", took, within)
		}
	})
}

// check compares the tally with the attempts that the server has executed.
func (s *chaos) check(t *testing.T) {
	t.Helper()
	synctest.Wait()
	for event, e := range s.tally.events {
		c := s.Counter(s.line.Key(event))
		if e.attempts != e.answered+e.uncertain+e.refused {
			t.Errorf("%s: the tally is wrong: %+v", event, *e)
		}
		if c.Attempts < e.answered || c.Attempts > e.answered+e.uncertain {
			t.Errorf("%s: %d were executed: %+v", event, c.Attempts, *e)
		}
	}
}
