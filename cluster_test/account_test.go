package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/window"
)

// An attempt is one call, and what became of it.
type attempt struct {
	event    string
	decision window.Decision
	err      error
	began    time.Time
	took     time.Duration
}

func (a attempt) ended() time.Time { return a.began.Add(a.took) }
func (a attempt) admitted() bool   { return a.err == nil && a.decision.Allowed }

// asker is Allow of a limiter, or something like it.
type asker func(ctx context.Context, event string) (window.Decision, error)

func (ask asker) attempt(ctx context.Context, event string) attempt {
	began := time.Now()
	d, err := ask(ctx, event)
	return attempt{event, d, err, began, time.Since(began)}
}

// A crowd of callers asks until its end.
type crowd struct {
	callers  sync.WaitGroup
	ends     atomic.Bool
	admitted atomic.Int64
	denied   atomic.Int64

	mu  sync.Mutex
	all []attempt
}

// load has so many callers ask, each at most once in 8 ms. The nth attempt of all is about the event that next tells.
func load(t *testing.T, callers int, ask asker, next func(n int) string) *crowd {
	t.Helper()
	var c crowd
	t.Cleanup(func() { c.end() })
	var n atomic.Int64
	for range callers {
		c.callers.Go(func() {
			var mine []attempt
			pace := time.NewTicker(8 * time.Millisecond)
			defer pace.Stop()
			for ; !c.ends.Load(); <-pace.C {
				a := ask.attempt(context.Background(), next(int(n.Add(1))))
				mine = append(mine, a)
				if a.admitted() {
					c.admitted.Add(1)
				} else if a.err == nil {
					c.denied.Add(1)
				}
			}
			c.mu.Lock()
			c.all = append(c.all, mine...)
			c.mu.Unlock()
		})
	}
	return &c
}

// inTurn has a crowd ask about these events, one after the other.
func inTurn(events []string) func(int) string {
	return func(n int) string { return events[n%len(events)] }
}

// await returns when so many more attempts are admitted.
func (c *crowd) await(t *testing.T, more int64) {
	t.Helper()
	until := c.admitted.Load() + more
	eventually(t, fmt.Sprint(more, " more attempts are admitted"), func() bool { return c.admitted.Load() >= until })
}

// end has the callers stop, and returns all attempts.
func (c *crowd) end() []attempt {
	c.ends.Store(true)
	c.callers.Wait()
	return c.all
}

// eventually waits until it is so.
func eventually(tb testing.TB, what string, so func() bool) {
	tb.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for late := time.After(time.Minute); !so(); {
		select {
		case <-again.C:
		case <-late:
			tb.Fatalf("after a minute it is still not so that %s", what)
		}
	}
}

// A tally is what became of the attempts on an event, how many units are counted in the end, and how many were admitted beyond its limit.
type tally struct{ asked, admitted, denied, uncertain, refused, counted, beyond int64 }

func count(t *testing.T, attempts []attempt) map[string]*tally {
	t.Helper()
	of := map[string]*tally{}
	for _, a := range attempts {
		if of[a.event] == nil {
			of[a.event] = &tally{}
		}
		if !of[a.event].add(a) {
			t.Fatalf("%s: an error that does not say whether it was counted, or not truly: %v", a.event, a.err)
		}
	}
	return of
}

// add tells whether the error is one that a caller can act on. What never reached a server was not counted for certain.
func (n *tally) add(a attempt) bool {
	n.asked++
	switch {
	case a.admitted():
		n.admitted++
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

// settle compares all attempts with what is counted in the end, for a limiter with one limit of most units in thirty days. What
// was lost of an event is missing there, and so was admitted again at most. It returns the sum.
func settle(t *testing.T, l limiter, most int64, attempts []attempt, lost map[string]int64) (sum tally) {
	t.Helper()
	for event, n := range count(t, attempts) {
		n.counted, n.beyond = most-free(t, l, event), max(0, n.admitted-most)
		if n.asked != n.admitted+n.denied+n.uncertain+n.refused {
			t.Errorf("%s: not every attempt is accounted for: %+v", event, *n)
		}
		if n.counted < n.admitted-lost[event] || n.counted > n.admitted+n.uncertain || n.admitted > most+lost[event] {
			t.Errorf("%s: of %d units, %d lost, %+v", event, most, lost[event], *n)
		}
		sum.asked += n.asked
		sum.admitted += n.admitted
		sum.denied += n.denied
		sum.uncertain += n.uncertain
		sum.refused += n.refused
		sum.counted += n.counted
		sum.beyond += n.beyond
	}
	return sum
}

// free is how many units of an event could still be admitted. After a fault, a limiter may leave the event's part of the slots alone
// for up to a second.
func free(t *testing.T, l limiter, event string) int64 {
	t.Helper()
	var d window.Decision
	eventually(t, event+" is asked about", func() bool {
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

// drain asks about each event until it is denied.
func drain(t *testing.T, l limiter, events []string) (attempts []attempt) {
	t.Helper()
	var mu sync.Mutex
	var callers sync.WaitGroup
	late := time.Now().Add(20 * time.Second)
	for part := range slices.Chunk(events, (len(events)+15)/16) {
		callers.Go(func() {
			pace := time.NewTicker(time.Millisecond / 2)
			defer pace.Stop()
			for _, event := range part {
				for denied := false; !denied; <-pace.C {
					a := asker(l.Allow).attempt(context.Background(), event)
					mu.Lock()
					attempts = append(attempts, a)
					mu.Unlock()
					denied = a.err == nil && !a.decision.Allowed
					if !denied && time.Now().After(late) {
						t.Errorf("%s is not denied in the end: %v", event, a.err)
						return
					}
				}
			}
		})
	}
	callers.Wait()
	return attempts
}

// clean fails the test if any attempt failed.
func clean(t *testing.T, attempts []attempt) {
	t.Helper()
	failed := slices.DeleteFunc(slices.Clone(attempts), func(a attempt) bool { return a.err == nil })
	if len(failed) > 0 {
		t.Errorf("%d of %d attempts failed, such as that on %s after %v: %v", len(failed), len(attempts), failed[0].event, failed[0].took, failed[0].err)
	}
}
