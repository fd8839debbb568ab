package pace

import (
	"context"
	"slices"

	"github.com/slidegate/slidegate/internal/limiter"
)

// onRedis keeps the turns of events in Redis, with pace.lua.
type onRedis struct {
	*limiter.Limiter
	args []string // Per and Max of each limit
}

func newOnRedis(e *limiter.Limiter) *onRedis {
	s := &onRedis{Limiter: e}
	for _, l := range e.Limits() {
		s.args = append(s.args, limiter.Integer(l.Per), limiter.Integer(l.Max))
	}
	return s
}

func (s *onRedis) book(ctx context.Context, event string, k, n, ahead int64) (b booking, err error) {
	args := slices.Concat(s.args, []string{limiter.Integer(ahead), limiter.Integer(n)})
	r, err := s.Call(ctx, limiter.Call{Verb: "book", Event: event, Units: k, Rest: args, Merges: true, Least: 5})
	b.trace = r.Trace
	if err != nil {
		return b, err
	}
	b.trace.Merged = b.trace.Merged || k > 1
	b.state = stateOf(r.Integers)
	b.until = r.Integers[4]
	turns := r.Integers[5:]
	b.turns = turns[min(int(r.First), len(turns)):min(int(r.First+k), len(turns))]
	return b, nil
}

func (s *onRedis) cancel(ctx context.Context, r Reservation) error {
	args := slices.Concat(s.args, []string{limiter.Integer(r.At.UnixMilli()), limiter.Integer(r.Shift)})
	_, err := s.Call(ctx, limiter.Call{Verb: "cancel", Event: r.Event, Units: r.N, Rest: args, Least: 1})
	return err
}

func (s *onRedis) pause(ctx context.Context, event string, d int64) (state, error) {
	r, err := s.Call(ctx, limiter.Call{Verb: "pause", Event: event, Units: 1, Rest: []string{limiter.Integer(d)}, Least: 4})
	if err != nil {
		return state{}, err
	}
	return stateOf(r.Integers), nil
}

func (s *onRedis) ask(ctx context.Context, event string) (state, error) {
	r, err := s.Call(ctx, limiter.Call{Verb: "due", Event: event, Units: 1, Reads: true, Least: 4})
	if err != nil {
		return state{}, err
	}
	return stateOf(r.Integers), nil
}

// Reset forgets the event.
func (s *onRedis) Reset(ctx context.Context, event string) error {
	_, err := s.Call(ctx, limiter.Call{Verb: "reset", Event: event, Units: 1, Least: 1})
	return err
}

func (s *onRedis) inspect(ctx context.Context, event string) ([]int64, error) {
	r, err := s.Call(ctx, limiter.Call{Verb: "inspect", Event: event, Units: 1, Rest: s.args, Reads: true, Least: 6})
	return r.Integers, err
}

// stateOf returns the state in a reply.
func stateOf(reply []int64) state { return state{now: reply[1], shift: reply[2], end: reply[3]} }
