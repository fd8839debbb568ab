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
// Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, 2005). A randomly
// seeded hash assigns each event to one of 32 shards. A new event in a full shard replaces the
// event that has the least weight. It inherits that weight for later comparisons, because its own
// earlier denials may have weighed as much before it was listed. An event that causes more than one
// in a thousand of all denials is therefore always counted, however many other events are denied
// once.
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
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/window"
)

const (
	shards   = 32
	perShard = 128              // most events in a shard
	average  = 15 * time.Minute // the time in which the weight of a denial decays to 1/e
	listed   = time.Hour        // how long an event is listed after its last denial
	clockAge = time.Second / 2  // how old the time of a denial can be
	maxScale = 1e200            // above this, all weights are scaled down
)

// List counts denials by event. Create one with New. It is safe for concurrent use.
type List struct {
	seed   maphash.Seed
	shards [shards]shard
}

// A shard is the part of a List that holds some of the events.
type shard struct {
	mu     sync.Mutex
	denied int64
	events []event
	places map[subject]int // indices in events

	due      atomic.Bool // the next denial reads the clock and sets this to false
	timer    *time.Timer // sets due, clockAge after the clock was read
	now      time.Time   // when the clock was last read
	scale    float64     // the weight of a denial now
	landmark time.Time   // when the weight of a new denial was 1

	_ [64]byte // keeps shards from sharing a cache line
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
	denied      int64 // since the event got its place
	since, last time.Time
	weight      float64
	inherited   float64 // the part of weight that may belong to other events
}

// New returns an empty List.
func New() *List {
	l := &List{seed: maphash.MakeSeed()}
	for i := range l.shards {
		s := &l.shards[i]
		s.places = map[subject]int{}
		s.due.Store(true)
		s.timer = time.AfterFunc(clockAge, func() { s.due.Store(true) })
		s.timer.Stop()
	}
	return l
}

// Count counts a denial. Set it as OnDenied of a limiter. Count ignores the context, and d.At,
// which is the time on the clock that decided.
func (l *List) Count(_ context.Context, d window.Denial) {
	s := &l.shards[maphash.String(l.seed, d.Event)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.due.Load() {
		s.due.Store(false)
		s.tick(time.Now())
		s.timer.Reset(clockAge)
	}
	s.denied++
	e := s.event(d)
	e.denied++
	e.weight += s.scale
	e.last, e.limit, e.override, e.retryAfter = s.now, d.Limit, d.Override, d.RetryAfter
}

// tick sets the time. It is not called for each denial, because reading the clock takes longer than
// the rest of Count.
func (s *shard) tick(now time.Time) {
	if s.denied == 0 {
		s.landmark = now
	}
	s.now, s.scale = now, math.Exp(float64(now.Sub(s.landmark))/float64(average))
	if s.scale > maxScale { // after about five days
		for i := range s.events {
			s.events[i].weight /= s.scale
			s.events[i].inherited /= s.scale
		}
		s.landmark, s.scale = now, 1
	}
}

// event returns the event of the denial d. If the event is new and the shard is full, it replaces
// the event that has the least weight.
func (s *shard) event(d window.Denial) *event {
	if i, known := s.places[subject{d.Limiter, d.Event}]; known {
		return &s.events[i]
	}
	e := event{subject: subject{d.Limiter, strings.Clone(d.Event)}, hashed: d.Hashed, since: s.now}
	i := len(s.events)
	if i < perShard {
		s.events = append(s.events, e)
	} else {
		i = s.least()
		delete(s.places, s.events[i].subject)
		e.weight, e.inherited = s.events[i].weight, s.events[i].weight
		s.events[i] = e
	}
	s.places[e.subject] = i
	return &s.events[i]
}

// least returns the index of the event that has the least weight.
func (s *shard) least() (least int) {
	for i := range s.events {
		if s.events[i].weight < s.events[least].weight {
			least = i
		}
	}
	return least
}
