package attack

import (
	"cmp"
	"container/heap"
	"context"
	"net/netip"
	"time"

	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

const (
	day    = 24 * time.Hour
	length = 7 * day
	hours  = int(length / time.Hour)
)

// start is a Monday.
var start = time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC)

// A world is one run: a clock that only the events of the simulation move, and the form, with its
// guard if it has one.
type world struct {
	now   time.Duration // since start
	end   time.Duration // of all attacks: a week, or an hour without the guard, where all hours are the same
	queue queue
	form  form
	guard *login.Guard  // nil: none
	free  login.Attempt // the answer without a guard
	err   error

	attackers []*attacker
	users     []*user
	tallies   [groups]tally
	alarms    []time.Duration // when the alarm went on, off, on and so on
}

// A form is how the form is guarded.
type form int

const (
	unguarded form = iota // without the guard
	waiting               // with the guard: a denied user waits
	solvable              // with challenges: a denied user can solve one
	forms
)

// newWorld returns a world without users. Its guard has the defaults.
func newWorld(f form, site window.Limit) (w *world, err error) {
	w = &world{end: length, form: f, free: login.Attempt{Allowed: true}}
	if f == unguarded {
		w.end = time.Hour
		return w, nil
	}
	cfg := login.Config{Name: "login", Now: func() time.Time { return start.Add(w.now) }}
	if f == solvable {
		cfg.Challenged = &login.Challenged{Site: site, Switched: func(login.Alarm) { w.alarms = append(w.alarms, w.now) }}
	}
	w.guard, err = login.NewLocal(cfg)
	return w, err
}

// repeat makes the first hour a week.
func (w *world) repeat() {
	for _, a := range w.attackers {
		for hour := range hours {
			a.tried[hour] = a.tried[0]
		}
		for _, on := range a.accounts.all {
			on.tried *= hours
		}
	}
}

// alarmed returns how long the alarm was on.
func (w *world) alarmed() (all time.Duration) {
	for i, at := range w.alarms {
		if i%2 == 0 {
			all -= at
		} else {
			all += at
		}
	}
	if len(w.alarms)%2 == 1 {
		all += length
	}
	return all
}

// A client is the origin of an attempt, and the account that it is on.
type client struct {
	account string
	address netip.Addr
	device  string // empty: not a known one
	solved  bool   // it has just solved a challenge
}

// begin asks the guard, as the form does.
func (w *world) begin(c client) (a *login.Attempt) {
	var err error
	switch ctx := context.Background(); {
	case w.guard == nil:
		return &w.free
	case c.solved:
		a, err = w.guard.BeginChallenged(ctx, c.account, c.address)
	case c.device == "":
		a, err = w.guard.Begin(ctx, c.account, c.address)
	default:
		a, err = w.guard.BeginKnown(ctx, c.account, c.address, c.device)
	}
	if w.err = cmp.Or(w.err, err); err != nil {
		return &login.Attempt{RetryAfter: length}
	}
	return a
}

// succeed reports to the guard that the password was right.
func (w *world) succeed(a *login.Attempt) {
	w.err = cmp.Or(w.err, a.Succeed(context.Background()))
}

// after calls do after a pause.
func (w *world) after(pause time.Duration, do func()) {
	w.queue.number++
	heap.Push(&w.queue, event{w.now + pause, w.queue.number, do})
}

// run runs all events in the order of their times. Events at the same time run in the order in
// which they were added.
func (w *world) run() error {
	for len(w.queue.events) > 0 && w.err == nil {
		next := heap.Pop(&w.queue).(event)
		w.now = next.at
		next.do()
	}
	return w.err
}

type event struct {
	at     time.Duration
	number int
	do     func()
}

// queue implements heap.Interface.
type queue struct {
	events []event
	number int // of the last event
}

func (q *queue) Len() int      { return len(q.events) }
func (q *queue) Swap(i, j int) { q.events[i], q.events[j] = q.events[j], q.events[i] }

// Push implements heap.Interface.
func (q *queue) Push(e any) { q.events = append(q.events, e.(event)) }

func (q *queue) Less(i, j int) bool {
	a, b := q.events[i], q.events[j]
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.number, b.number)) < 0
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(q.events) - 1
	e := q.events[last]
	q.events = q.events[:last]
	return e
}
