package engine

import (
	"context"
	"errors"
	"fmt"
)

// maxRound is how many events of one AllowEach are in flight at once. With more, their requests
// would wait for one another until the timeout.
const maxRound = 4096

// each is an attempt of one unit on each of many events.
type each struct {
	redis     *redis
	limits    *Limits
	verb      Verb
	events    []string
	answers   []Answer
	rangeErrs [slotRanges]error // why a slot range gets no more requests; nil if it does
}

// decideEach answers an attempt of one unit on each of the events at these indices. More than
// maxRound go in rounds.
func (s *redis) decideEach(ctx context.Context, limits *Limits, v Verb, events []string, indices []int, answers []Answer) {
	if err := s.check(ctx); err != nil {
		for _, i := range indices {
			answers[i].Err = err
		}
		return
	}
	e := &each{redis: s, limits: limits, verb: v, events: events, answers: answers}
	for len(indices) > 0 {
		n := min(len(indices), maxRound)
		e.round(ctx, indices[:n])
		indices = indices[n:]
	}
}

// round sends the attempts at these indices together. Attempts on one event become one request: its
// i-th attempt is the i-th occurrence of the event.
func (e *each) round(ctx context.Context, indices []int) {
	now, err := e.redis.scriptTime()
	if err == nil && ctx.Err() != nil {
		err = notSent(ctx.Err())
	}
	ask := question{string(e.verb), now, 1, e.limits, e.limits.args}
	c := e.redis.newCalls(len(indices))
	c.ctx, c.timeout = ctx, e.redis.Timeout
	defer c.free()
	slab, byKey := make([]request, len(indices)), make(map[string]*request, len(indices))
	attempts := make([]attempt, len(indices))
	for k, i := range indices {
		key := e.redis.Key(e.events[i])
		q := byKey[key]
		if q == nil {
			q = &slab[len(byKey)]
			byKey[key] = q
			q.prepare(e.redis, key, ask)
			q.attempts, q.err = 0, err
			e.add(c, q)
		}
		attempts[k] = attempt{q, q.attempts}
		q.attempts++
	}
	c.run()
	for k, i := range indices {
		e.answers[i].Reply, e.answers[i].Err = attempts[k].request.attempt(attempts[k].index)
	}
	e.endRanges(c)
}

// An attempt is one attempt of a request.
type attempt struct {
	request *request
	index   int
}

// add adds a request to the call, unless its slot range gets no more requests.
func (e *each) add(c *call, q *request) {
	if q.err == nil {
		q.err = e.rangeErrs[q.rangeIndex]
	}
	if q.err == nil {
		c.requests = append(c.requests, q)
	}
}

// endRanges stops sending to the slot ranges in which a request got no reply in time, or nothing
// ran.
func (e *each) endRanges(c *call) {
	var ran [slotRanges]bool
	for _, q := range c.requests {
		ran[q.rangeIndex] = ran[q.rangeIndex] || !isOutage(q.err)
	}
	for _, q := range c.requests {
		switch {
		case errors.Is(q.cause, errExpired):
			e.rangeErrs[q.rangeIndex] = fmt.Errorf("%w: it was not sent, as others in the same call got no reply within %v", ErrOutage, rounded(c.timeout))
		case !ran[q.rangeIndex] && e.rangeErrs[q.rangeIndex] == nil:
			e.rangeErrs[q.rangeIndex] = fmt.Errorf("%w: it was not sent, as none of the others in the same call ran", ErrOutage)
		}
	}
}
