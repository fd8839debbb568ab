package limiter

import (
	"context"
	"strings"

	"github.com/slidegate/slidegate/internal/send"
)

// A Call is a script call for an event that is not an attempt. It also serves limiters whose scripts
// have verbs of their own.
type Call struct {
	Verb   string
	Event  string
	Units  int64    // number of units; 0 if the script takes no such argument
	Rest   []string // the last arguments
	Merges bool     // concurrent calls that differ only in Units are merged into one call for all units
	Reads  bool     // the call changes nothing, or repeating it has no further effect
	InText bool     // the reply can contain strings
	Least  int      // the fewest integers in a reply
}

// A CallReply is the script's reply to a Call.
type CallReply struct {
	Integers []int64
	Texts    map[int]string // the strings in the reply, by their indices in Integers
	First    int64          // how many units of merged calls come before the units of this call
	Trace    send.Trace
}

// Call makes the script call c. The event must have passed Check.
func (l *Limiter) Call(ctx context.Context, c Call) (CallReply, error) {
	reply, err := l.store.(*onRedis).call(ctx, l.Key(c.Event), c)
	if err == nil && len(reply.Integers) < c.Least {
		return reply, l.Malformed()
	}
	return reply, l.Wrap(err)
}

// call makes the script call c for the event with the given key.
func (s *onRedis) call(ctx context.Context, key string, c Call) (reply CallReply, err error) {
	timeout, err := s.pipeline.AwaitClient(ctx, s.Timeout)
	if err != nil {
		return reply, err
	}
	now, err := s.scriptTime()
	if err != nil {
		return reply, err
	}
	r := s.pipeline.NewRequest()
	defer r.Free()
	r.Call = send.Call{
		Script: s.Script(c.Verb), Key: key, Verb: c.Verb, Time: now, Units: c.Units, Rest: c.Rest, Reads: c.Reads, InText: c.InText, OneKey: true,
	}
	if c.Merges {
		r.Group, r.Merge = strings.Join(c.Rest, " "), send.Merge{Verb: c.Verb, Script: r.Script, OneKey: true}
	}
	s.pipeline.Do(ctx, timeout, r)
	return CallReply{r.Reply, r.Texts, r.First, r.Trace}, r.Err
}
