package limiter

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/internal/send"
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
	pipeline *send.Pipeline
	denials  *denialCache // nil without a denial cache
}

// Decide decides a request for n units under limits.
func (s *onRedis) Decide(ctx context.Context, limits *Limits, v Verb, event string, n int64) (Reply, error) {
	timeout, err := s.pipeline.AwaitClient(ctx, s.Timeout)
	if err != nil {
		return Reply{}, err
	}
	key, caches := s.Key(event), s.denials != nil && v == Allow
	var began time.Time
	if caches {
		began = time.Now()
		if r, denied := s.cachedDenial(limits, key, n, began); denied {
			return r, nil
		}
	}
	q, err := s.request(limits, v, key, n)
	if err != nil {
		return Reply{}, err
	}
	defer q.Free()
	s.pipeline.Do(ctx, timeout, q)
	r, err := decode(q, limits, v)
	if v != Peek {
		s.denials.changed(key, r.Counted, err)
	}
	if caches && err == nil && !r.Allowed {
		s.denials.remember(key, denial{units: n, limits: limits.text, at: r.At, rows: slices.Clone(r.rows()[:3*len(limits.list)])}, began)
	}
	return r, err
}

// request returns a request for n units. Free the request after use.
func (s *onRedis) request(limits *Limits, v Verb, key string, n int64) (*send.Request, error) {
	now, err := s.scriptTime()
	if err != nil {
		return nil, err
	}
	r := s.pipeline.NewRequest()
	r.Call = send.Call{Script: s.Script(v.sent()), Key: key, Verb: v.sent(), Time: now, Units: n, Rest: limits.argsFor(v), Reads: v == Peek}
	attempt := v == Allow || v == Count
	if attempt || v == Some && s.MergeAsSome {
		r.Group = limits.text
	}
	if attempt && n == 1 {
		merged := verbEach
		switch {
		case v == Count:
			merged = verbCountEach
		case s.MergeAsSome:
			merged = string(Some)
		}
		r.Merge = send.Merge{Verb: merged, Script: s.Script(merged), OneKey: merged != string(Some)}
	}
	return r, nil
}

// cachedDenial returns the reply that the denial cache holds for a request for n units, if that is
// known to be denied. Its waits are reduced by the age of the denial.
func (s *onRedis) cachedDenial(limits *Limits, key string, n int64, now time.Time) (r Reply, denied bool) {
	d, denied := s.denials.lookup(key, n, limits.text, now)
	if !denied {
		return r, false
	}
	age := max(0, now.Sub(d.replied))
	r = Reply{Key: key, At: s.Clock.Unit(s.Clock.Time(d.at).Add(age)), Remembered: true}
	if s.Notify != nil { // otherwise nothing reads the trace
		r.Trace.Master = s.pipeline.MasterOf(key)
	}
	r.setRows(d.rows)
	for i := range limits.list {
		row, ms := r.Row(i), age.Milliseconds()
		row[1], row[2] = max(0, row[1]-ms), max(0, row[2]-ms)
	}
	return r, true
}

// scriptTime returns the time to send to the script. It returns "" if the configuration has no
// clock: the script then uses the server's time.
func (s *onRedis) scriptTime() (string, error) {
	if s.Clock.Now == nil {
		return "", nil
	}
	now, err := s.Clock.Read()
	return Integer(now), err
}

// Refund gives back the units that c records.
func (s *onRedis) Refund(ctx context.Context, event string, c Counted) error {
	args, _ := scriptArgs(nil, c.Limits, s.CountDenied)
	return s.change(ctx, event, Call{Verb: verbRefund, Units: min(c.Units, s.MaxUnits), Rest: append(args, Integer(c.At))})
}

// Reset forgets the event.
func (s *onRedis) Reset(ctx context.Context, event string) error {
	return s.change(ctx, event, Call{Verb: verbReset, Units: 1, Rest: s.own.args})
}

// change makes a call that can give back units, and then makes the denial cache forget the event.
func (s *onRedis) change(ctx context.Context, event string, c Call) error {
	key := s.Key(event)
	defer s.denials.forget(key)
	_, err := s.call(ctx, key, c)
	return err
}

// Inspect returns the script's reply to the verb inspect.
func (s *onRedis) Inspect(ctx context.Context, limits *Limits, event string) ([]int64, error) {
	r, err := s.call(ctx, s.Key(event), Call{Verb: verbInspect, Units: 1, Rest: limits.args, Reads: true})
	return r.Integers, err
}

// Integer formats an argument of a script.
func Integer(n int64) string { return strconv.FormatInt(n, 10) }
