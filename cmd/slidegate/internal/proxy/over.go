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
	maxTracked  = 1000      // events counted at once
	maxReported = 20        // events in a report
	denialTTL   = time.Hour // from the last denial of an event until it is dropped
)

// topDenied counts denied requests by event in bounded memory. It uses the Space-Saving algorithm
// (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data
// Streams, 2005). A new event replaces the event with the fewest denials and inherits its count,
// because it may have had as many before. So an event with more than one in a thousand of the
// denials is always tracked.
type topDenied struct {
	mu        sync.Mutex
	events    map[string]*deniedEvent
	byDenials denialHeap
	total     int64 // denials so far
}

// deniedEvent is an event that was denied.
type deniedEvent struct {
	event       string
	denied      int64 // an upper bound
	unsure      int64 // the part of denied that can belong to other events
	since, last time.Time
	usage       window.Usage // of the limit that denied it last
	index       int          // in the heap
}

func newTopDenied() *topDenied { return &topDenied{events: map[string]*deniedEvent{}} }

// add counts a denial of an event by the limit of a usage.
func (o *topDenied) add(event string, by window.Usage, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total++
	e := o.events[event]
	if e == nil {
		e = o.enter(event, now)
	}
	e.denied++
	e.last, e.usage = now, by
	heap.Fix(&o.byDenials, e.index)
}

// enter adds an event. If maxTracked events are tracked, it replaces the one with the fewest
// denials.
func (o *topDenied) enter(event string, now time.Time) *deniedEvent {
	e := &deniedEvent{event: event, since: now}
	if len(o.byDenials) < maxTracked {
		heap.Push(&o.byDenials, e)
	} else {
		out := o.byDenials[0]
		delete(o.events, out.event)
		e.denied, e.unsure = out.denied, out.denied
		o.byDenials[0] = e
	}
	o.events[event] = e
	return e
}

// forget drops events whose last denial is longer ago than denialTTL.
func (o *topDenied) forget(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for event, e := range o.events {
		if now.Sub(e.last) > denialTTL {
			heap.Remove(&o.byDenials, e.index)
			delete(o.events, event)
		}
	}
}

// most returns the events with the most certain denials, the number of all denials so far, and the
// number of tracked events.
func (o *topDenied) most() (top []deniedEvent, total int64, events int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.byDenials {
		top = append(top, *e)
	}
	slices.SortFunc(top, func(a, b deniedEvent) int {
		return cmp.Or(cmp.Compare(b.denied-b.unsure, a.denied-a.unsure), cmp.Compare(a.event, b.event))
	})
	return top[:min(len(top), maxReported)], o.total, len(o.byDenials)
}

// times returns how far an event is over its limit. It divides the certain denials of the event by
// the number of requests that the limit allows in the same time, or in one Per if that is longer.
func (e deniedEvent) times() float64 {
	pers := max(1, float64(e.last.Sub(e.since))/float64(e.usage.Limit.Per))
	return float64(e.denied-e.unsure) / (float64(e.usage.Limit.Max) * pers)
}

// denialHeap is a heap.Interface with the fewest denials first.
type denialHeap []*deniedEvent

// Len returns the number of events.
func (h denialHeap) Len() int { return len(h) }

// Less reports whether the first event has fewer denials.
func (h denialHeap) Less(i, j int) bool { return h[i].denied < h[j].denied }

// Swap swaps two events.
func (h denialHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push adds an event at the end.
func (h *denialHeap) Push(e any) {
	event := e.(*deniedEvent)
	event.index = len(*h)
	*h = append(*h, event)
}

// Pop removes the last event, and returns it.
func (h *denialHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
