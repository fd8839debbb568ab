// Package mostdenied lists the events that limiters deny most often: who is limited, by which
// limit, since when, and how often. It counts in this process's memory, and uses a bounded amount
// of it.
//
//	denied := mostdenied.New()
//	limiter, err := window.New(conn, window.Config{Name: "api", Limits: limits, OnDenied: denied.Count})
//	// ...
//	operators.Handle("GET /denied", denied)
//
// One List serves all limiters of a process: those of packages window, ar1, pace, inflight and
// login. Each process has its own List.
//
// # Which events are listed
//
// A List counts up to 4,096 events at once, with the Space-Saving algorithm (Metwally, Agrawal, El
// Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, 2005). A new event
// in a full List replaces the event that has the least weight. It inherits that weight for later
// comparisons, because its own earlier denials may have weighed as much before it was listed. An
// event that causes more than one in 4,096 of all denials is therefore always counted, however many
// other events are denied once.
//
// The weight of a denial halves in about ten minutes. This is implemented as forward decay
// (Cormode, Shkapenyuk, Srivastava, Xu: Forward Decay, 2009): new denials weigh more, and old
// weights stay unchanged. Yesterday's attacker therefore does not stay at the top of the list. An
// event leaves the list an hour after its last denial.
//
// # Who may see the list
//
// A List shows who is limited, such as addresses and accounts, and its handler has no access
// control. Serve it only where operators alone have access, as with net/http/pprof.
package mostdenied

import (
	"context"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/window"
)

const (
	capacity = 4096             // most events in a List
	average  = 15 * time.Minute // the time in which the weight of a denial decays to 1/e
	listed   = time.Hour        // how long an event is listed after its last denial
	clockAge = time.Second / 2  // how old the time of a denial can be
	maxScale = 1e200            // above this, all weights are scaled down
)

// List counts denials by event. Create one with New. It is safe for concurrent use.
type List struct {
	mu     sync.Mutex
	denied int64
	events []*event // a heap: no event has less weight than its parent, so the first has the least
	known  map[subject]*event

	due      atomic.Bool // the next denial reads the clock and sets this to false
	timer    *time.Timer // sets due, clockAge after the clock was read
	now      time.Time   // when the clock was last read
	scale    float64     // the weight of a denial now
	landmark time.Time   // when the weight of a new denial was 1
}

// subject identifies an event together with its limiter.
type subject struct{ limiter, event string }

// event is an event that was denied.
type event struct {
	subject
	hashed      bool
	limit       window.Limit
	override    window.OverrideMode
	retryAfter  time.Duration
	denied      int64 // since the event was added
	since, last time.Time
	weight      float64
	inherited   float64 // the part of weight that may belong to other events
	index       int     // in List.events
}

// New returns an empty List.
func New() *List {
	l := &List{known: map[subject]*event{}}
	l.due.Store(true)
	l.timer = time.AfterFunc(clockAge, func() { l.due.Store(true) })
	l.timer.Stop()
	return l
}

// Count counts a denial. Set it as OnDenied of a limiter. Count ignores the context, and d.At,
// which is the time on the clock that decided.
func (l *List) Count(_ context.Context, d window.Denial) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.due.Load() {
		l.due.Store(false)
		l.tick(time.Now())
		l.timer.Reset(clockAge)
	}
	l.denied++
	e := l.event(d)
	e.denied++
	e.weight += l.scale
	e.last, e.limit, e.override, e.retryAfter = l.now, d.Limit, d.Override, d.RetryAfter
	l.sink(e)
}

// tick sets the time. It is not called for each denial, because reading the clock takes longer than
// the rest of Count.
func (l *List) tick(now time.Time) {
	if l.denied == 0 {
		l.landmark = now
	}
	l.now, l.scale = now, math.Exp(float64(now.Sub(l.landmark))/float64(average))
	if l.scale > maxScale { // after about five days
		for _, e := range l.events {
			e.weight /= l.scale
			e.inherited /= l.scale
		}
		l.landmark, l.scale = now, 1
	}
}

// event returns the event of the denial d. If the event is new and the List is full, it replaces
// the event that has the least weight.
func (l *List) event(d window.Denial) *event {
	e := l.known[subject{d.Limiter, d.Event}]
	if e != nil {
		return e
	}
	if len(l.events) < capacity {
		e = &event{}
		l.add(e)
	} else {
		e = l.events[0]
		delete(l.known, e.subject)
		*e = event{weight: e.weight, inherited: e.weight}
	}
	e.subject, e.hashed, e.since = subject{d.Limiter, strings.Clone(d.Event)}, d.Hashed, l.now
	l.known[e.subject] = e
	return e
}

// add adds an event without weight to the heap. All events on its way to the root move down.
func (l *List) add(e *event) {
	l.events = append(l.events, e)
	at := len(l.events) - 1
	for ; at > 0; at = (at - 1) / 2 {
		l.put(l.events[(at-1)/2], at)
	}
	l.put(e, 0)
}

// sink moves an event, whose weight has grown, down the heap.
func (l *List) sink(e *event) {
	at := e.index
	for {
		child := 2*at + 1
		if child+1 < len(l.events) && l.events[child+1].weight < l.events[child].weight {
			child++
		}
		if child >= len(l.events) || l.events[child].weight >= e.weight {
			break
		}
		l.put(l.events[child], at)
		at = child
	}
	l.put(e, at)
}

// put sets the index of an event in the heap.
func (l *List) put(e *event, at int) { l.events[at], e.index = e, at }
