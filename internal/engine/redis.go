package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/denials"
	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/lua"
)

// The verbs of the scripts that are not verbs of requests.
const (
	verbEach      = "each"      // attempts of one unit, one after the other
	verbCountEach = "counteach" // the same, and denied attempts count too
	verbRefund    = "refund"
	verbReset     = "reset"
	verbInspect   = "inspect"
)

// redis is the Store of a limiter on Redis.
type redis struct {
	*core
	conn         *Connection
	disconnected atomic.Bool // requests came before there was a connection
	script       script
	denials      *denials.Cache // nil without a denial cache

	made   time.Time
	ranges [slotRanges]slotRange

	calls   sync.Pool // of unused *call
	batches sync.Pool // of unused *batch
}

// slotRange is a sixty-fourth of the hash slots.
type slotRange struct {
	breaker
	queue
	abandoned atomic.Int32 // requests in flight whose callers left
	_         [64]byte     // keeps neighbours off one cache line
}

// maxAbandoned bounds the abandoned requests of a slot range, which accumulate while Redis hangs.
const maxAbandoned = 4096

var errTooMany = fmt.Errorf("%w: %d requests are in flight whose callers left", ErrOutage, maxAbandoned)

func newRedis(conn *Connection, l *core) *redis {
	s := &redis{core: l, conn: conn, script: script{source: l.Script}, made: time.Now()}
	if hash := lua.Hash(l.Script); hash != "" {
		s.script.known.Store(&hash)
	}
	for i := range s.ranges {
		q := &s.ranges[i].queue
		q.redis, q.abandoned, q.serve = s, &s.ranges[i].abandoned, q.run
		s.ranges[i].notify = func(ctx context.Context, opened bool) { s.outage(ctx, i, opened) }
	}
	if l.DenialCache > 0 {
		s.denials = denials.New(l.DenialCache, s.get, func(ctx context.Context) { s.report(ctx, Event{Kind: CacheOff}) })
	}
	return s
}

// outage reports that the breaker of a slot range opened or closed.
func (s *redis) outage(ctx context.Context, slotRange int, opened bool) {
	kind := OutageEnded
	if opened {
		kind = OutageBegan
	}
	s.report(ctx, Event{Kind: kind, Range: slotRange})
}

func (s *redis) report(ctx context.Context, e Event) {
	if s.Notify != nil {
		s.Notify(ctx, e)
	}
}

// merging returns the verb for several merged attempts of one verb.
func (s *redis) merging(verb string) string {
	switch {
	case verb == string(Count):
		return verbCountEach
	case s.MergeAsSome:
		return string(Some)
	}
	return verbEach
}

// Decide answers a request for n units under limits.
func (s *redis) Decide(ctx context.Context, limits *Limits, v Verb, event string, n int64) (Reply, error) {
	if err := s.check(ctx); err != nil {
		return Reply{}, err
	}
	k := s.Key(event)
	if s.denials != nil && v == Allow {
		return s.decideWithCache(ctx, limits, k, n)
	}
	return s.decide(ctx, s.Timeout, limits, v, k, n)
}

// decide sends a request for n units.
func (s *redis) decide(ctx context.Context, timeout time.Duration, limits *Limits, v Verb, k string, n int64) (Reply, error) {
	c, err := s.ask(ctx, timeout, k, question{verb: string(v), n: n, limits: limits, args: limits.argsFor(v)})
	if err != nil {
		return Reply{}, err
	}
	defer c.free()
	c.run()
	return c.single.attempt(0)
}

// decideWithCache decides an attempt by the denial cache if it can, and otherwise sends a request.
func (s *redis) decideWithCache(ctx context.Context, limits *Limits, k string, n int64) (Reply, error) {
	began := time.Now()
	result, err := s.denials.Lookup(ctx, k, denials.Request{Units: n, Limits: limits.text}, s.Timeout)
	if err != nil {
		return Reply{Trace: Trace{SlotRange: s.slotRange(k)}}, err
	}
	if result.Denied {
		return s.cachedDenial(k, result), nil
	}
	sent, timeout := time.Now(), s.Timeout
	if timeout >= 0 {
		timeout = max(1, timeout-sent.Sub(began))
	}
	r, err := s.decide(ctx, timeout, limits, Allow, k, n)
	if err != nil {
		s.denials.Forget(k)
		return r, err
	}
	s.denials.Remember(result, sent, r.Allowed, denials.Reply{At: r.At, Rows: slices.Clone(r.rows()[:3*len(limits.list)])})
	return r, nil
}

// cachedDenial returns a denial of the cache, with the waits that remain now.
func (s *redis) cachedDenial(k string, result denials.Result) Reply {
	r := Reply{At: s.Clock.Unit(s.Clock.Time(result.Reply.At).Add(result.Age)), Trace: Trace{Remembered: true}}
	if s.Notify != nil { // otherwise nobody reads it
		r.Trace.SlotRange = s.slotRange(k)
	}
	r.setRows(result.Reply.Rows)
	for i := range len(result.Reply.Rows) / 3 {
		row, ms := r.Row(i), result.Age.Milliseconds()
		row[1], row[2] = max(0, row[1]-ms), max(0, row[2]-ms)
	}
	return r
}

// client returns the client, which must be connected.
func (s *redis) client() Client { return s.conn.up.Load().Client }

// slotRange returns the slot range of a key. If Redis is no cluster, there is only one.
func (s *redis) slotRange(k string) int {
	if !s.client().Cluster() {
		return 0
	}
	return keys.Slot(k) * slotRanges / keys.Slots
}

// ask returns a call with one request, at the time of scriptTime. Run it, and then free it.
func (s *redis) ask(ctx context.Context, timeout time.Duration, key string, ask question) (*call, error) {
	now, err := s.scriptTime()
	if err != nil {
		return nil, err
	}
	c := s.newCall(ctx, timeout)
	ask.now = now
	c.single.prepare(s, key, ask)
	c.requests = append(c.requests, c.single)
	return c, nil
}

// do sends one request that is not an attempt, and returns the raw reply.
func (s *redis) do(ctx context.Context, key, verb string, n int64, args []string) ([]int64, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	c, err := s.ask(ctx, s.Timeout, key, question{verb: verb, n: n, args: args})
	if err != nil {
		return nil, err
	}
	defer c.free()
	c.run()
	return c.single.reply.raw, c.single.err
}

// elapsed returns the time since the limiter was made.
func (s *redis) elapsed() time.Duration { return time.Since(s.made) }

// scriptTime returns the time that is sent to the script, which is empty without a clock in the
// configuration.
func (s *redis) scriptTime() (string, error) {
	if s.Clock.Now == nil {
		return "", nil
	}
	now, err := s.Clock.Read()
	return integer(now), err
}

// Refund gives back units that were counted.
func (s *redis) Refund(ctx context.Context, event string, c Counted) error {
	args, _ := scriptArgs(nil, c.Limits, s.CountDenied)
	return s.change(ctx, verbRefund, event, min(c.Units, s.MaxUnits), append(args, integer(c.At)))
}

// Reset forgets the event.
func (s *redis) Reset(ctx context.Context, event string) error {
	return s.change(ctx, verbReset, event, 1, s.own.args)
}

// change sends a request that can end a cached denial. It drops the denial itself, because the
// notification of Redis comes a little later.
func (s *redis) change(ctx context.Context, verb, event string, n int64, args []string) error {
	k := s.Key(event)
	if s.denials != nil {
		defer s.denials.Forget(k)
	}
	_, err := s.do(ctx, k, verb, n, args)
	return err
}

// Inspect returns the reply of the script's verb inspect.
func (s *redis) Inspect(ctx context.Context, limits *Limits, event string) ([]int64, error) {
	return s.do(ctx, s.Key(event), verbInspect, 1, limits.args)
}
