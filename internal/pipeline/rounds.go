package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Rounds sends many requests in rounds. The timeout applies to each round. If in a round a request
// of a slot range gets no reply in time, or none of its requests run, the slot range gets no more
// requests. There must be a client: see Connected.
type Rounds struct {
	pipeline *Pipeline
	ended    [Ranges]error // why each slot range gets no more requests; nil if it still does
}

// NewRounds returns a Rounds that has not sent anything yet.
func (p *Pipeline) NewRounds() *Rounds { return &Rounds{pipeline: p} }

// Do sends one round of requests, and waits until each request has a Reply or an Err, the timeout
// passes, or ctx is done.
func (s *Rounds) Do(ctx context.Context, timeout time.Duration, requests []*Request) {
	if requests = s.open(requests); len(requests) == 0 {
		return
	}
	c := s.pipeline.conn.newCall(requests)
	c.start(ctx, s.pipeline, timeout)
	for _, r := range requests {
		if c.allows(r) {
			r.lane.queue.put(r)
		}
	}
	c.wait()
	s.end(requests)
}

// open returns the requests whose slot ranges still get requests, and sets the errors of the
// others.
func (s *Rounds) open(requests []*Request) (open []*Request) {
	for _, r := range requests {
		r.Trace.SlotRange = s.pipeline.Range(r.Key)
		if r.Err = s.ended[r.Trace.SlotRange]; r.Err == nil {
			open = append(open, r)
		}
	}
	return open
}

// end records which slot ranges get no more requests after a round.
func (s *Rounds) end(requests []*Request) {
	var ran [Ranges]bool
	for _, r := range requests {
		ran[r.Trace.SlotRange] = ran[r.Trace.SlotRange] || !IsOutage(r.Err)
	}
	var late *expired
	for _, r := range requests {
		i := r.Trace.SlotRange
		switch {
		case errors.As(r.cause, &late):
			s.ended[i] = s.failure("others in the same call got no reply", late)
		case !ran[i] && s.ended[i] == nil:
			s.ended[i] = s.failure("none of the others in the same call ran", FailureIn(r.Err).Cause)
		}
	}
}

func (s *Rounds) failure(why string, cause error) *Failure {
	return &Failure{Name: s.pipeline.name, Counted: ErrOutage, Cause: fmt.Errorf("it was not sent, because %s: %w", why, cause)}
}
