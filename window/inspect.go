package window

import (
	"errors"
	"time"
)

// errNoSnapshot is returned for a reply that only something that is no Slidegate script can give.
var errNoSnapshot = errors.New("the reply to inspect is not as the head of window.lua says; remove the script that Redis holds under this hash")

// snapshot returns the state that the reply to inspect says, as the head of window.lua has it.
func (l *Limiter) snapshot(reply []int64) (Snapshot, error) {
	if len(reply) < 2 {
		return Snapshot{}, errNoSnapshot
	}
	s, rest := Snapshot{At: utc(reply[1])}, reply[2:]
	for _, limit := range l.limits {
		if len(rest) < 4 || rest[3] < 0 || rest[3] > int64(len(rest)-4)/2 {
			return Snapshot{}, errNoSnapshot
		}
		state, pairs := LimitState{Usage: newUsage(limit, rest)}, rest[4:4+2*rest[3]]
		for ; len(pairs) > 0; pairs = pairs[2:] {
			state.Buckets = append(state.Buckets, Bucket{Last: utc(pairs[0]), Units: pairs[1]})
		}
		s.Limits, rest = append(s.Limits, state), rest[4+2*rest[3]:]
	}
	return s, nil
}

func utc(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
