package pace

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/window"
)

// onRedis keeps the turns of events in Redis, by pace.lua.
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
	if err != nil {
		return b, err
	}
	b.state = stateOf(r.Integers)
	b.until = r.Integers[4]
	turns := r.Integers[5:]
	b.turns = turns[min(int(r.First), len(turns)):min(int(r.First+k), len(turns))]
	return b, nil
}

func (s *onRedis) cancel(ctx context.Context, event string, r Reservation) error {
	args := slices.Concat(s.args, []string{integer(r.At.UnixMilli()), integer(r.Shift)})
	_, err := s.call(ctx, engine.Call{Verb: "cancel", Event: event, Units: r.N, Rest: args}, 1)
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

func (s *onRedis) inspect(ctx context.Context, event string) (of Snapshot, err error) {
	r, err := s.call(ctx, engine.Call{Verb: "inspect", Event: event, Units: 1, Rest: s.args, Reads: true}, 6)
	if err != nil {
		return of, err
	}
	of = Snapshot{At: utc(r.Integers[1]), PausedUntil: utc(r.Integers[3]), Newest: utc(r.Integers[4]), Limits: make([]LimitState, len(s.Limits()))}
	rest := r.Integers[6:]
	for i := range of.Limits {
		if len(rest) < 4 || rest[3] < 0 || rest[3] > int64(len(rest)-4)/2 {
			return Snapshot{}, s.Wrap(errReply)
		}
		for pairs := rest[4 : 4+2*rest[3]]; len(pairs) > 0; pairs = pairs[2:] {
			of.Limits[i].Turns = append(of.Limits[i].Turns, window.Bucket{Last: utc(pairs[0]), Units: pairs[1]})
		}
		rest = rest[4+2*rest[3]:]
	}
	return of, nil
}

// errReply is returned for a reply that no Slidegate script gives.
var errReply = errors.New("the reply is not as the head of pace.lua says; remove the script that Redis holds under this hash")

// call makes a call whose reply has at least so many integers.
func (s *onRedis) call(ctx context.Context, c engine.Call, least int) (r engine.CallReply, err error) {
	if r, err = s.Call(ctx, c); err == nil && len(r.Integers) < least {
		err = s.Wrap(errReply)
	}
	return r, err
}

// stateOf returns what a reply says of pauses.
func stateOf(reply []int64) state { return state{now: reply[1], shift: reply[2], end: reply[3]} }

func integer(n int64) string { return strconv.FormatInt(n, 10) }
