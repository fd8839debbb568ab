package engine

import (
	"context"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/pipeline"
)

// A Call is a script call for an event, for a kind of limiter whose script has its own verbs.
type Call struct {
	Verb   string
	Event  string
	Units  int64    // number of units; 0 if the script takes no such argument
	Rest   []string // the last arguments
	Merges bool     // simultaneous calls that differ only in Units become one, for all their units
	Reads  bool     // it changes nothing, or repeating it has the same effect
	InText bool     // the reply can contain strings
}

// A CallReply is the reply of the script.
type CallReply struct {
	Integers []int64
	Texts    map[int]string // by their indices among the Integers
	First    int64          // how many units of other calls come before these
	Trace    pipeline.Trace
}

// Call makes a script call. The event must have passed Check.
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
	return CallReply{r.Reply, r.Texts, r.First, r.Trace}, l.Wrap(r.Err)
}

// Scores returns the scores of the event's sorted set, which the client caches for at most ttl.
func (l *Limiter) Scores(ctx context.Context, event string, ttl time.Duration) (pipeline.Copy, error) {
	s := l.store.(*onRedis)
	timeout, err := s.pipeline.Connected(ctx, s.Timeout)
	if err != nil {
		return pipeline.Copy{}, l.Wrap(err)
	}
	c, err := s.pipeline.Get(ctx, pipeline.ReadScores, s.Key(event), timeout, ttl)
	return c, l.Wrap(err)
}
