package pace_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// A fault breaks something while callers ask, and repairs it once they are done.
type fault struct {
	name    string
	strike  func(a *account)
	mend    func(a *account) // may be nil
	timeout time.Duration    // of the limiters; 0 means a minute, because a busy machine can be slow
}

var faults = []fault{
	{name: "none", strike: func(*account) {}},
	{name: "lost reply", strike: func(a *account) { a.faults.LoseReply("EVALSHA") }},
	{name: "cut", strike: func(a *account) { a.faults.Cut() }},
	{name: "clients killed", strike: func(a *account) { a.do("CLIENT", "KILL", "TYPE", "normal") }},
	{name: "no script", strike: func(a *account) { a.do("SCRIPT", "FLUSH") }},
	{
		name:    "hang",
		strike:  func(a *account) { a.server.Pause(a) },
		mend:    func(a *account) { a.server.Resume(a) },
		timeout: time.Second,
	},
	{
		name:   "OOM",
		strike: func(a *account) { a.do("CONFIG", "SET", "maxmemory", "1") },
		mend:   func(a *account) { a.do("CONFIG", "SET", "maxmemory", "0") },
	},
	{
		name: "foreign value",
		strike: func(a *account) {
			a.do("EVAL", moveTo("kept")+"return redis.call('RPUSH', KEYS[1], 'foreign')", "1", a.key)
		},
		mend: func(a *account) {
			a.do("EVAL", "redis.call('DEL', KEYS[1]) if redis.call('EXISTS', 'kept') == 1 then redis.call('RENAME', 'kept', KEYS[1]) end return 1", "1", a.key)
		},
	},
}

func moveTo(key string) string {
	return fmt.Sprintf("if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('RENAME', KEYS[1], '%s') end ", key)
}

// TestAmidFaults lets callers reserve, cancel and wait while something breaks. Turns are 5 ms
// apart, so each is identified by its time. In the end, the record must hold the turns that callers
// got, none that they gave back, and no more other turns than there were calls with an unknown
// outcome.
func TestAmidFaults(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		for _, callers := range []int{1, 60} {
			t.Run(fmt.Sprintf("%s, %d callers", f.name, callers), func(t *testing.T) {
				t.Parallel()
				a := newAccount(t, cmp.Or(f.timeout, time.Minute))
				for round := range redistest.UnlessShort(2, 1) {
					a.round(f, round, callers)
				}
				t.Logf("%d booked, %d waited, %d given back; %d failed, %d with an unknown outcome", a.booked, a.waited, a.back, a.failed, a.unclear)
				if a.booked == 0 || f.name == "none" && a.failed+a.unclear > 0 {
					t.Error("weak test")
				}
			})
		}
	}
}

// account records what callers know about the turns of an event.
type account struct {
	*testing.T
	server   *redistest.Server
	faults   redistest.Faults
	limiters []*pace.Limiter
	event    string
	key      string
	calls    atomic.Int64 // calls left until the fault strikes

	mu    sync.Mutex
	told  []*told
	slack int // number of calls that may have booked a turn or given one back

	booked, waited, back, failed, unclear int
}

// told is what a caller knows about its turn, and when the call that booked the turn began and
// ended.
type told struct {
	at, began, ended time.Time
	waited           bool // another call may have booked the turn
	back             bool // the turn was given back
}

func newAccount(t *testing.T, timeout time.Duration) *account {
	a := &account{T: t, server: redistest.Start(t, "--maxmemory-policy", "noeviction")}
	for i := range 3 {
		client := a.server.NewClient(t, func(o *rueidis.ClientOption) { a.faults.Break(o) })
		cfg := pace.Config{Name: "faults", Limits: parsed("1/5ms", "256/1h"), MaxAhead: time.Hour, Timeout: timeout, Observe: a.observe}
		if i == 2 { // with another MaxAhead
			cfg.MaxAhead = time.Second
		}
		a.limiters = append(a.limiters, must(pace.New(window.On(client), cfg)))
	}
	return a
}

func (a *account) do(command ...string) {
	if err := a.server.Do(a.Context(), command...).Error(); err != nil {
		a.Errorf("%q: %v", command, err)
	}
}

// taken is the context key of a *time.Time that receives the turn that Wait took.
type taken struct{}

func (a *account) observe(ctx context.Context, o window.Observation) {
	if at, ok := ctx.Value(taken{}).(*time.Time); ok && o.Kind == window.KindAllowed {
		*at = o.Decision.At
	}
}

// round makes at most 240 attempts on a new event.
func (a *account) round(f fault, round, callers int) {
	a.event, a.told, a.slack = fmt.Sprint("e", round), nil, 0
	a.key = must(a.limiters[0].Inspect(a.Context(), a.event)).Key
	a.calls.Store(int64(callers) + 30 + rand.Int64N(60)) // by then, some calls are over
	struck := make(chan struct{})
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for j := range 240 / callers {
				if a.calls.Add(-1) == 0 {
					f.strike(a)
					close(struck)
				}
				a.attempt(i*240/callers+j, a.limiters[i%len(a.limiters)])
			}
		})
	}
	group.Wait()
	<-struck
	if f.mend != nil {
		f.mend(a)
	}
	a.settle()
	a.check()
}

// attempt books a turn, and gives some turns back. Every third attempt waits with a deadline.
func (a *account) attempt(i int, l *pace.Limiter) {
	began := time.Now()
	if i%3 == 2 {
		a.wait(l, began)
		return
	}
	r, err := l.Reserve(a.Context(), a.event)
	if a.knows(err) && err == nil && r.OK {
		e := a.tell(&a.booked, told{at: r.At, began: began, ended: time.Now()})
		if i%3 == 1 {
			err := l.Cancel(a.Context(), r)
			if e.back = !a.knows(err) || err == nil; e.back {
				a.count(&a.back)
			}
		}
	}
}

func (a *account) count(n *int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*n++
}

// tell records what a caller knows about its turn.
func (a *account) tell(n *int, e told) *told {
	a.mu.Lock()
	defer a.mu.Unlock()
	*n++
	a.told = append(a.told, &e)
	return &e
}

// wait waits for a turn for at most 20 ms. If the turn does not come in time, it must be given
// back.
func (a *account) wait(l *pace.Limiter, began time.Time) {
	var at time.Time
	ctx, cancel := context.WithTimeout(context.WithValue(a.Context(), taken{}, &at), 20*time.Millisecond)
	defer cancel()
	if err := l.Wait(ctx, a.event); err == nil {
		a.tell(&a.waited, told{at: at, began: began, ended: time.Now(), waited: true})
	} else if !errors.Is(err, context.DeadlineExceeded) {
		a.knows(err)
	} else if a.calls.Load() <= 0 { // the cancellation may be lost
		a.count(&a.slack)
	}
}

// knows reports whether the outcome of a call is known. If it is not, the call may have booked a
// turn or given one back.
func (a *account) knows(err error) bool {
	switch {
	case errors.Is(err, window.ErrUncertain):
		a.count(&a.slack)
		a.count(&a.unclear)
		return false
	case err != nil:
		a.count(&a.failed)
	}
	return true
}

// settle waits until no lines are left and a call succeeds.
func (a *account) settle() {
	for late := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		lines := 0
		for _, l := range a.limiters {
			lines += pace.Lines(l)
			if _, err := l.Reserve(a.Context(), "settled"); err != nil {
				lines++
			}
		}
		if lines == 0 {
			return
		}
		if time.Now().After(late) {
			a.Fatalf("%d lines remain", lines)
		}
	}
}

// check compares the record with what callers know.
func (a *account) check() {
	a.Helper()
	left := map[time.Time]int64{}
	turns := must(a.limiters[0].Inspect(a.Context(), a.event)).Limits[1].Buckets
	for _, b := range turns {
		left[b.Last] = b.Units
	}
	missing := 0
	for _, e := range a.told {
		if e.back {
			continue
		}
		if left[e.at] != 1 { // 0 if the turn is lost, 2 if two callers have it
			missing++
		}
		delete(left, e.at)
	}
	if missing+len(left) > a.slack {
		a.Errorf("%d turns are lost, and %d have no caller: %v; only %d calls can account for them", missing, len(left), left, a.slack)
	}
	a.checkOrder()
}

// checkOrder checks that turns are at least 5 ms apart, and that a call that began after another
// call had ended got the later turn.
func (a *account) checkOrder() {
	slices.SortFunc(a.told, func(x, y *told) int { return cmp.Or(x.at.Compare(y.at), x.ended.Compare(y.ended)) })
	var last, latest time.Time // the previous turn, and the latest start of a call among the previous turns
	for _, e := range a.told {
		if !e.back && e.at.Sub(last) < 5*time.Millisecond {
			a.Errorf("turns %v apart", e.at.Sub(last))
		}
		if !e.back {
			last = e.at
		}
		if !e.waited && e.ended.Before(latest) {
			a.Errorf("the turn at %v was booked before an earlier one", e.at)
		}
		if !e.waited && e.began.After(latest) {
			latest = e.began
		}
	}
}
