package inflight

import (
	"context"
	"time"

	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/internal/send"
)

// store keeps the leases of events, in Redis or in memory. Times are in µs.
type store interface {
	// acquire takes the units of the lease r, if they are free or r already holds them.
	acquire(ctx context.Context, event string, r ref, ttl time.Duration, holder string) (answer, error)
	// renew extends leases, and returns for each of them the token, or 0 if it is not held. In
	// Redis, a lease that only the Fallback holds is acquired; it is then the only one of the call.
	renew(ctx context.Context, event string, all []ref, ttl time.Duration, holder string) ([]int64, error)
	// release ends leases.
	release(ctx context.Context, event string, all []ref) error
	// inspect returns the leases.
	inspect(ctx context.Context, event string) (Snapshot, error)
	// Reset forgets the event.
	Reset(ctx context.Context, event string) error
}

// answer is the reply to acquire.
type answer struct {
	held  bool
	now   int64
	used  int64 // units that are held
	token int64
	wait  time.Duration // if not held, how long until the units fit, provided that no lease is released or renewed
	trace send.Trace
}

// onRedis keeps leases in Redis, with inflight.lua.
type onRedis struct{ *limiter.Limiter }

func (s *onRedis) acquire(ctx context.Context, event string, r ref, ttl time.Duration, holder string) (a answer, err error) {
	rest := []string{limiter.Integer(ttl.Milliseconds()), r.id, limiter.Integer(r.n), limiter.Integer(r.max)}
	reply, err := s.Call(ctx, limiter.Call{Verb: "acquire", Event: event, Rest: named(rest, holder), Least: 5})
	if err != nil {
		return answer{trace: reply.Trace}, err
	}
	i := reply.Integers
	return answer{i[0] == 1, i[1], i[2], i[3], time.Duration(i[4]) * time.Millisecond, reply.Trace}, nil
}

// named appends the holder to rest, unless it is empty.
func named(rest []string, holder string) []string {
	if holder != "" {
		rest = append(rest, holder)
	}
	return rest
}

func (s *onRedis) renew(ctx context.Context, event string, all []ref, ttl time.Duration, holder string) ([]int64, error) {
	if all[0].token == 0 {
		a, err := s.acquire(ctx, event, all[0], ttl, holder)
		return []int64{a.token}, err
	}
	rest := []string{limiter.Integer(ttl.Milliseconds())}
	for _, r := range all {
		rest = append(rest, r.id, limiter.Integer(r.n), limiter.Integer(r.max), limiter.Integer(r.token))
	}
	reply, err := s.Call(ctx, limiter.Call{Verb: "renew", Event: event, Rest: named(rest, holder), Reads: true, Least: 3 + len(all)})
	tokens := make([]int64, len(all))
	for i, r := range all {
		if err == nil && reply.Integers[3+i] > 0 {
			tokens[i] = r.token
		}
	}
	return tokens, err
}

func (s *onRedis) release(ctx context.Context, event string, all []ref) error {
	var rest []string
	for _, r := range all {
		rest = append(rest, r.id, limiter.Integer(r.n))
	}
	_, err := s.Call(ctx, limiter.Call{Verb: "release", Event: event, Rest: rest, Reads: true, Least: 3})
	return err
}

// Reset forgets the event.
func (s *onRedis) Reset(ctx context.Context, event string) error {
	_, err := s.Call(ctx, limiter.Call{Verb: "reset", Event: event, Reads: true, Least: 1})
	return err
}

func (s *onRedis) inspect(ctx context.Context, event string) (of Snapshot, err error) {
	r, err := s.Call(ctx, limiter.Call{Verb: "inspect", Event: event, Reads: true, InText: true, Least: 6})
	if err != nil {
		return of, err
	}
	of = Snapshot{At: s.Clock.Known(r.Integers[1]), Used: r.Integers[2], Token: r.Integers[3]}
	for i := 6; i+5 <= len(r.Integers); i += 5 {
		of.Leases = append(of.Leases, Held{
			Holder: r.Texts[i+4], Units: r.Integers[i+1], Token: r.Integers[i+2], Since: s.Clock.Known(r.Integers[i+2]), Until: s.Clock.Known(r.Integers[i+3]),
		})
	}
	return of, nil
}
