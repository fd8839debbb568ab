package engine

import (
	"context"
	"time"

	"github.com/slidegate/slidegate/internal/pipeline"
)

// maxRound is how many events of one AllowEach call are in flight at once. If there were more,
// their requests would wait for one another until the timeout.
const maxRound = 4096

// each makes an attempt of one unit for each of many events, or peeks at each of them.
type each struct {
	store   *onRedis
	timeout time.Duration // for each round
	limits  func(i int) *Limits
	verb    Verb
	rounds  *pipeline.Rounds
	events  []string

	// For each event:

	replies []Reply
	errs    []error
}

// round sets the replies and errors of the events at the given indices.
func (e *each) round(ctx context.Context, indices []int) {
	now, err := e.store.scriptTime()
	if err == nil && ctx.Err() != nil {
		err = pipeline.NotSent(ctx.Err())
	}
	if err != nil {
		for _, i := range indices {
			e.errs[i] = err
			e.replies[i].Trace.SlotRange = e.store.pipeline.Range(e.store.Key(e.events[i]))
		}
		return
	}
	requests, places := e.requests(indices, now)
	e.rounds.Do(ctx, e.timeout, requests)
	for k, i := range indices {
		e.replies[i], e.errs[i] = decode(places[k].request, e.limits(i), e.verb, places[k].unit)
	}
}

// A place locates an attempt or a peek in a request.
type place struct {
	request *pipeline.Request
	unit    int64
}

// requests returns one request per key, and the place of each attempt or peek. Attempts on the same
// event are the units of one request. All peeks at the same event share a single unit, because they
// count nothing.
func (e *each) requests(indices []int, now string) (all []*pipeline.Request, places []place) {
	slab, byKey := make([]pipeline.Request, len(indices)), make(map[string]*pipeline.Request, len(indices))
	places = make([]place, len(indices))
	for k, i := range indices {
		key := e.store.Key(e.events[i])
		r := byKey[key]
		if r == nil {
			r = &slab[len(all)]
			e.store.prepare(r, e.limits(i), e.verb, key, now, 1)
			byKey[key], all = r, append(all, r)
		} else if e.verb != Peek {
			r.Units++
		}
		places[k] = place{r, r.Units - 1}
	}
	return all, places
}
