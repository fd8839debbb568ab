package engine

import (
	"context"
	"strings"

	"github.com/slidegate/slidegate/internal/pipeline"
)

// A Call is a script call for an event. It serves limiters whose scripts have verbs of their own.
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
	Trace    pipeline.Trace
}

// Call makes the script call c. The event must have passed Check.
func (l *Limiter) Call(ctx context.Context, c Call) (reply CallReply, err error) {
	s := l.store.(*onRedis)
	timeout, err := s.pipeline.Connected(ctx, s.Timeout)
	if err != nil {
		return reply, l.Wrap(err)
	}
	now, err := s.scriptTime()
	if err != nil {
		return reply, l.Wrap(err)
	}
	r := s.pipeline.NewRequest()
	defer r.Free()
	r.Script, r.Key, r.Verb, r.Time, r.Units, r.Rest, r.Reads, r.InText, r.OneKey = s.script, s.Key(c.Event), c.Verb, now, c.Units, c.Rest, c.Reads, c.InText, true
	if c.Merges {
		r.Group, r.Merged = strings.Join(c.Rest, " "), c.Verb
	}
	s.pipeline.Do(ctx, timeout, r)
	reply = CallReply{r.Reply, r.Texts, r.First, r.Trace}
	if r.Err == nil && len(r.Reply) < c.Least {
		return reply, l.Malformed()
	}
	return reply, l.Wrap(r.Err)
}
