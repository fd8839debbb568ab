package pace

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/slidegate/slidegate/internal/engine"
)

// onRedis keeps the turns of events in Redis, with pace.lua.
type onRedis struct {
	*engine.Limiter
	args []string // Per and Max of each limit
}

func newOnRedis(e *engine.Limiter) *onRedis {
	s := &onRedis{Limiter: e}
	for _, l := range e.Limits() {
		s.args = append(s.args, integer(l.Per), integer(l.Max))
	}
	return s
}

func (s *onRedis) book(ctx context.Context, event string, k, n, ahead int64) (b booking, err error) {
	args := slices.Concat(s.args, []string{integer(ahead), integer(n)})
	r, err := s.call(ctx, engine.Call{Verb: "book", Event: event, Units: k, Rest: args, Merges: true}, 5)
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
	args := slices.Concat(s.args, []string{integer(r.At.UnixMilli()), integer(r.Shift)})
	_, err := s.call(ctx, engine.Call{Verb: "cancel", Event: r.Event, Units: r.N, Rest: args}, 1)
	return err
}

func (s *onRedis) pause(ctx context.Context, event string, d int64) (state, error) {
	r, err := s.call(ctx, engine.Call{Verb: "pause", Event: event, Units: 1, Rest: []string{integer(d)}}, 4)
	if err != nil {
		return state{}, err
	}
	return stateOf(r.Integers), nil
}

func (s *onRedis) ask(ctx context.Context, event string) (state, error) {
	r, err := s.call(ctx, engine.Call{Verb: "due", Event: event, Units: 1, Reads: true}, 4)
	if err != nil {
		return state{}, err
	}
	return stateOf(r.Integers), nil
}

// Reset forgets the event.
func (s *onRedis) Reset(ctx context.Context, event string) error {
	_, err := s.call(ctx, engine.Call{Verb: "reset", Event: event, Units: 1}, 1)
	return err
}

func (s *onRedis) inspect(ctx context.Context, event string) ([]int64, error) {
	r, err := s.call(ctx, engine.Call{Verb: "inspect", Event: event, Units: 1, Rest: s.args, Reads: true}, 6)
	return r.Integers, err
}

// errReply is returned for a reply that no Slidegate script would send.
var errReply = errors.New("the reply does not match the header of pace.lua; remove the script that Redis holds under this hash")

// call makes the call c. It returns an error if the reply has fewer integers than least.
func (s *onRedis) call(ctx context.Context, c engine.Call, least int) (r engine.CallReply, err error) {
	if r, err = s.Call(ctx, c); err == nil && len(r.Integers) < least {
		err = s.Wrap(errReply)
	}
	return r, err
}

// stateOf returns the state in a reply.
func stateOf(reply []int64) state { return state{now: reply[1], shift: reply[2], end: reply[3]} }

func integer(n int64) string { return strconv.FormatInt(n, 10) }
