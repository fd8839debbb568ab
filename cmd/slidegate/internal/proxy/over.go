package proxy

import (
	"cmp"
	"container/heap"
	"slices"
	"sync"
	"time"

	"github.com/slidegate/slidegate/window"
)

const (
	tracked = 1000      // how many events are counted at once
	told    = 20        // how many of them are told
	stale   = time.Hour // when one that was not denied again is forgotten
)

// over counts denied requests by event, in bounded memory: the Space-Saving algorithm (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data
// Streams, 2005). A new event takes the place of the one with the fewest denials, and may have had as many before. So whoever has more than one in a thousand of the denials is in it, whatever others do.
type over struct {
	mu     sync.Mutex
	events map[string]*offender
	fewest fewest
	total  int64 // denials so far
}

// offender is an event that was denied.
type offender struct {
	event       string
	denied      int64 // at most
	unsure      int64 // of these, those that may be another's
	since, last time.Time
	usage       window.Usage // of the limit that denied it last
	place       int          // in the heap
}

func newOver() *over { return &over{events: map[string]*offender{}} }

// add counts a denial by the limit of the usage.
func (o *over) add(event string, by window.Usage, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total++
	e := o.events[event]
	if e == nil {
		e = o.enter(event, now)
	}
	e.denied++
	e.last, e.usage = now, by
	heap.Fix(&o.fewest, e.place)
}

// enter makes room for an event.
func (o *over) enter(event string, now time.Time) *offender {
	e := &offender{event: event, since: now}
	if len(o.fewest) < tracked {
		heap.Push(&o.fewest, e)
	} else {
		out := o.fewest[0]
		delete(o.events, out.event)
		e.denied, e.unsure = out.denied, out.denied
		o.fewest[0] = e
	}
	o.events[event] = e
	return e
}

// forget drops events that have not been denied for a while.
func (o *over) forget(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for event, e := range o.events {
		if now.Sub(e.last) > stale {
			heap.Remove(&o.fewest, e.place)
			delete(o.events, event)
		}
	}
}

// most are the events with the most denials that are surely theirs, the denials so far, and how many events are counted.
func (o *over) most() (top []offender, total int64, events int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.fewest {
		top = append(top, *e)
	}
	slices.SortFunc(top, func(a, b offender) int {
		return cmp.Or(cmp.Compare(b.denied-b.unsure, a.denied-a.unsure), cmp.Compare(a.event, b.event))
	})
	return top[:min(len(top), told)], o.total, len(o.fewest)
}

// times is how far over its limit an event is: its denials, as a multiple of what the limit admits in the same time, or in one Per if that is longer.
func (e offender) times() float64 {
	pers := max(1, float64(e.last.Sub(e.since))/float64(e.usage.Limit.Per))
	return float64(e.denied-e.unsure) / (float64(e.usage.Limit.Max) * pers)
}

// fewest is a heap with the fewest denials first.
type fewest []*offender

// Len, Less, Swap, Push and Pop are those of heap.Interface.
func (f fewest) Len() int { return len(f) }

// Less has fewer denials first.
func (f fewest) Less(i, j int) bool { return f[i].denied < f[j].denied }

// Swap changes two places.
func (f fewest) Swap(i, j int) {
	f[i], f[j] = f[j], f[i]
	f[i].place, f[j].place = i, j
}

// Push adds the last.
func (f *fewest) Push(e any) {
	o := e.(*offender)
	o.place = len(*f)
	*f = append(*f, o)
}

// Pop takes the last.
func (f *fewest) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}
