package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/internal/denials"
	"github.com/slidegate/slidegate/internal/pipeline"
)

// Script verbs that are not verbs of requests.
const (
	verbEach      = "each"      // attempts of one unit each, one after the other
	verbCountEach = "counteach" // the same, but denied attempts count too
	verbRefund    = "refund"
	verbReset     = "reset"
	verbInspect   = "inspect"
)

// onRedis is the Store of a limiter on Redis.
type onRedis struct {
	*core
	pipeline *pipeline.Pipeline
	script   *pipeline.Script
	denials  *denials.Cache // nil without a denial cache
}

func newOnRedis(conn *pipeline.Connection, l *core) *onRedis {
	s := &onRedis{core: l, script: pipeline.NewScript(l.Script)}
	s.pipeline = pipeline.New(conn, l.Name, s.report)
	if l.DenialCache > 0 {
		s.denials = denials.New(l.DenialCache, s.get, func(ctx context.Context) { s.report(ctx, pipeline.Report{Kind: CacheOff}) })
	}
	return s
}

func (s *onRedis) report(ctx context.Context, r pipeline.Report) {
	if s.Notify != nil {
		s.Notify(ctx, r)
	}
}

// Decide decides a request for n units under limits.
func (s *onRedis) Decide(ctx context.Context, limits *Limits, v Verb, event string, n int64) (Reply, error) {
	timeout, err := s.pipeline.Connected(ctx, s.Timeout)
	if err != nil {
		return Reply{}, err
	}
	key := s.Key(event)
	if s.denials != nil && v == Allow {
		return s.decideWithCache(ctx, timeout, limits, key, n)
	}
	r, err := s.request(limits, v, key, n)
	if err != nil {
		return Reply{}, err
	}
	defer r.Free()
	s.pipeline.Do(ctx, timeout, r)
	return decode(r, limits, v)
}

// request returns a request for n units. Free the request after use.
func (s *onRedis) request(limits *Limits, v Verb, key string, n int64) (*pipeline.Request, error) {
	now, err := s.scriptTime()
	if err != nil {
		return nil, err
	}
	r := s.pipeline.NewRequest()
	r.Script, r.Key, r.Verb, r.Time, r.Units, r.Rest = s.script, key, v.sent(), now, n, limits.argsFor(v)
	if r.Reads = v == Peek; v == Allow || v == Count {
		r.Group = limits.text
		if n == 1 {
			r.Merged = s.merged(v)
		}
	}
	return r, nil
}

// merged returns the script verb for several attempts, of the verb v, that have been merged.
func (s *onRedis) merged(v Verb) string {
	switch {
	case v == Count:
		return verbCountEach
	case s.MergeAsSome:
		return string(Some)
	}
	return verbEach
}

// decideWithCache returns a denial from the denial cache if there is one. Otherwise it sends a
// request.
func (s *onRedis) decideWithCache(ctx context.Context, timeout time.Duration, limits *Limits, key string, n int64) (Reply, error) {
	began := time.Now()
	result, err := s.denials.Lookup(ctx, key, denials.Request{Units: n, Limits: limits.text}, timeout)
	if err != nil {
		return Reply{Trace: pipeline.Trace{SlotRange: s.pipeline.Range(key)}}, err
	}
	if result.Denied {
		return s.cachedDenial(key, result), nil
	}
	if timeout >= 0 {
		timeout = max(1, timeout-time.Since(began))
	}
	return s.decideAndRemember(ctx, timeout, limits, result, key, n)
}

// remembered returns the denial that the denial cache holds for key, or nil if there is none.
func (s *onRedis) remembered(ctx context.Context, timeout time.Duration, limits *Limits, key string, n int64) (*Reply, error) {
	if s.denials == nil {
		return nil, nil
	}
	result, err := s.denials.Lookup(ctx, key, denials.Request{Units: n, Limits: limits.text}, timeout)
	if err != nil || !result.Denied {
		return nil, err
	}
	r := s.cachedDenial(key, result)
	return &r, nil
}

// decideAndRemember sends a request, and adds the reply to the denial cache. The result is that of
// the preceding lookup.
func (s *onRedis) decideAndRemember(ctx context.Context, timeout time.Duration, limits *Limits, result denials.Result, key string, n int64) (Reply, error) {
	q, err := s.request(limits, Allow, key, n)
	if err != nil {
		return Reply{}, err
	}
	defer q.Free()
	sent := time.Now()
	s.pipeline.Do(ctx, timeout, q)
	r, err := decode(q, limits, Allow)
	if err != nil {
		s.denials.Forget(key)
		return r, err
	}
	s.denials.Remember(result, sent, r.Allowed, denials.Reply{At: r.At, Rows: slices.Clone(r.rows()[:3*len(limits.list)])})
	return r, nil
}

// cachedDenial returns the Reply for a cached denial. Its waits are reduced by the age of the
// denial.
func (s *onRedis) cachedDenial(key string, result denials.Result) Reply {
	r := Reply{Key: key, At: s.Clock.Unit(s.Clock.Time(result.Reply.At).Add(result.Age)), Remembered: true}
	if s.Notify != nil { // otherwise nothing reads the trace
		r.Trace.SlotRange = s.pipeline.Range(key)
	}
	r.setRows(result.Reply.Rows)
	for i := range len(result.Reply.Rows) / 3 {
		row, ms := r.Row(i), result.Age.Milliseconds()
		row[1], row[2] = max(0, row[1]-ms), max(0, row[2]-ms)
	}
	return r
}

// get returns the value of key. The denial cache calls it.
func (s *onRedis) get(ctx context.Context, key string, timeout, ttl time.Duration) (value string, hit bool, err error) {
	c, err := s.pipeline.Get(ctx, pipeline.ReadValue, key, timeout, ttl)
	if errors.Is(err, pipeline.ErrLeft) {
		err = fmt.Errorf("%w: %w", denials.ErrLeft, ctx.Err())
	}
	return c.Value, c.Hit, err
}

// scriptTime returns the time to send to the script. It returns "" if the configuration has no
// clock: the script then uses the server's time.
func (s *onRedis) scriptTime() (string, error) {
	if s.Clock.Now == nil {
		return "", nil
	}
	now, err := s.Clock.Read()
	return integer(now), err
}

// Refund gives back the units that c records.
func (s *onRedis) Refund(ctx context.Context, event string, c Counted) error {
	args, _ := scriptArgs(nil, c.Limits, s.CountDenied)
	return s.change(ctx, verbRefund, event, min(c.Units, s.MaxUnits), append(args, integer(c.At)))
}

// Reset forgets the event.
func (s *onRedis) Reset(ctx context.Context, event string) error {
	return s.change(ctx, verbReset, event, 1, s.own.args)
}

// change sends a request that can invalidate a cached denial. It removes the denial from the cache
// itself, because the notification from Redis arrives a little later.
func (s *onRedis) change(ctx context.Context, verb, event string, n int64, args []string) error {
	key := s.Key(event)
	if s.denials != nil {
		defer s.denials.Forget(key)
	}
	_, err := s.call(ctx, verb, key, n, args)
	return err
}

// Inspect returns the script's reply to the verb inspect.
func (s *onRedis) Inspect(ctx context.Context, limits *Limits, event string) ([]int64, error) {
	return s.call(ctx, verbInspect, s.Key(event), 1, limits.args)
}

// call sends a request that is not an attempt, and returns the integers of the reply.
func (s *onRedis) call(ctx context.Context, verb, key string, n int64, args []string) ([]int64, error) {
	timeout, err := s.pipeline.Connected(ctx, s.Timeout)
	if err != nil {
		return nil, err
	}
	now, err := s.scriptTime()
	if err != nil {
		return nil, err
	}
	r := s.pipeline.NewRequest()
	defer r.Free()
	r.Script, r.Key, r.Verb, r.Time, r.Units, r.Rest, r.Reads = s.script, key, verb, now, n, args, verb == verbInspect
	s.pipeline.Do(ctx, timeout, r)
	return r.Reply, r.Err
}

func integer(n int64) string { return strconv.FormatInt(n, 10) }
