package main

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

// world is a single run. It consists of a clock, which only the events of the simulation advance,
// and the form, possibly with a guard.
type world struct {
	now   time.Duration // since start
	end   time.Duration // the end of all attacks: after a week or, without the guard, after an hour, because then all hours are the same
	queue pile[event]
	added int // the number of events added so far
	form  form
	guard *login.Guard  // nil if there is none
	free  login.Attempt // the answer without a guard
	err   error

	attackers []*attacker
	users     []*user
	tallies   [groups]tally
	alarms    []time.Duration // when the alarm switched on, off, on again, and so on
}

// form says how the login form is guarded.
type form int

const (
	unguarded form = iota // without the guard
	waiting               // with the guard; a denied user waits
	solvable              // with challenges; a denied user can solve one
	forms
)

// newWorld returns a world without users. Its guard has the defaults.
func newWorld(f form, alarm window.Limit) (w *world, err error) {
	w = &world{end: length, form: f, free: login.Attempt{Allowed: true}}
	if f == unguarded {
		w.end = time.Hour
		return w, nil
	}
	cfg := login.Config{Name: "login", Now: func() time.Time { return start.Add(w.now) }}
	if f == solvable {
		cfg.Challenged = &login.Challenged{Site: alarm, Switched: func(login.Alarm) { w.alarms = append(w.alarms, w.now) }}
	}
	w.guard, err = login.NewLocal(cfg)
	return w, err
}

// repeat makes a week out of the first hour.
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

// alarmed returns for how long the alarm was on.
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

// client is the account and the origin of an attempt.
type client struct {
	account string
	address netip.Addr
	device  string // empty if the device is not known
	solved  bool   // a challenge has just been solved
}

// begin calls the guard in the same way as the form does.
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

// succeed reports to the guard that the password was correct.
func (w *world) succeed(a *login.Attempt) {
	w.err = cmp.Or(w.err, a.Succeed(context.Background()))
}

// after calls do after the given pause.
func (w *world) after(pause time.Duration, do func()) {
	w.added++
	heap.Push(&w.queue, event{w.now + pause, w.added, do})
}

// run runs all events in chronological order. Events at the same time run in the order in which
// they were added.
func (w *world) run() error {
	for w.queue.Len() > 0 && w.err == nil {
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

// Compare orders events by time.
func (e event) Compare(other event) int {
	return cmp.Or(cmp.Compare(e.at, other.at), cmp.Compare(e.number, other.number))
}

// pile implements heap.Interface.
type pile[T interface{ Compare(T) int }] struct{ all []T }

func (p *pile[T]) Len() int           { return len(p.all) }
func (p *pile[T]) Less(i, j int) bool { return p.all[i].Compare(p.all[j]) < 0 }
func (p *pile[T]) Swap(i, j int)      { p.all[i], p.all[j] = p.all[j], p.all[i] }

// Push implements heap.Interface.
func (p *pile[T]) Push(x any) { p.all = append(p.all, x.(T)) }

// Pop implements heap.Interface.
func (p *pile[T]) Pop() any {
	last := p.all[len(p.all)-1]
	p.all = p.all[:len(p.all)-1]
	return last
}
