package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Rounds sends many requests in rounds, each within the timeout. A slot range in which a request
// got no reply in time, or in which nothing ran, gets no more requests. There must be a client: see
// Connected.
type Rounds struct {
	pipeline *Pipeline
	ended    [Ranges]error // why a slot range gets no more requests; nil if it does
}

// NewRounds returns a series that has not begun.
func (p *Pipeline) NewRounds() *Rounds { return &Rounds{pipeline: p} }

// Do sends requests, and waits until all have a Reply or an Err, the timeout passes, or ctx ends.
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
	s.end(timeout, requests)
}

// open returns the requests whose slot range has not ended, and sets the error of the others.
func (s *Rounds) open(requests []*Request) (open []*Request) {
	for _, r := range requests {
		r.Trace.SlotRange = s.pipeline.Range(r.Key)
		if r.Err = s.ended[r.Trace.SlotRange]; r.Err == nil {
			open = append(open, r)
		}
	}
	return open
}

// end ends the slot ranges that shall get no more requests.
func (s *Rounds) end(timeout time.Duration, requests []*Request) {
	var ran [Ranges]bool
	for _, r := range requests {
		ran[r.Trace.SlotRange] = ran[r.Trace.SlotRange] || !IsOutage(r.Err)
	}
	for _, r := range requests {
		i := r.Trace.SlotRange
		switch {
		case errors.Is(r.cause, errExpired):
			s.ended[i] = fmt.Errorf("%w: it was not sent, as others in the same call got no reply within %v", ErrOutage, Rounded(timeout))
		case !ran[i] && s.ended[i] == nil:
			s.ended[i] = fmt.Errorf("%w: it was not sent, as none of the others in the same call ran", ErrOutage)
		}
	}
}
