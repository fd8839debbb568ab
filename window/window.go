// Package window limits how often events happen, by sliding windows: at most 1 every 5 s, and 5 an
// hour, and 20 a day.
//
// A Limiter answers, for an event (an address, an account, an API key): may this happen now, and if
// not, when? All its limits are decided at once: an attempt is counted in every limit or in none,
// and a denied one costs nothing. No interval of length Per ever holds more than Max admitted
// units, and a wait that is told is exact to the millisecond. The state is one Redis key per event,
// or this process's memory; docs/guarantees.md has the promises by name.
package window

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/engine"
)

// Config says what a Limiter counts, and under which name. Only Name and Limits are needed.
type Config struct {
	// Name names the limiter in its keys: 1 to 64 bytes of A-Z a-z 0-9 . _ - : only. Limiters of
	// one name share their counts.
	Name string

	// Limits holds 1 to 31 limits, no two with the same Per. An attempt must fit all of them.
	//
	// To change them, deploy other limits under the same Name: every limit whose Per stays keeps
	// its counts, an added one starts at zero, and while old and new callers overlap, each limit
	// bounds what the callers that have it admitted.
	Limits []Limit

	// CountDenied counts denied attempts too, in every limit and as if admitted, so that whoever
	// keeps hammering stays out.
	CountDenied bool

	// Secret, if set, hides events in keys: a key then holds an HMAC-SHA256 of the event under this
	// secret, so that nobody who sees the keys learns the events, and nobody who chooses events can
	// steer which shard they fall on. Give it at least 16 random bytes; whoever knows it can find
	// short events again by trying. A shorter one is refused.
	Secret []byte `json:"-"`

	// Now is the clock; nil is the clock of the Redis server, or this process's monotonic clock in
	// memory. It is for simulations, replay and tests. Its times lie between 1970 and 6429. Redis
	// keeps keys of such a limiter for 24 h of real time beyond their last window; in memory, an
	// event is held until it is Reset.
	Now func() time.Time `json:"-"`

	// Timeout is how long one call may wait for Redis in all: 0 is a second, less than 0 is for
	// ever, so that only the context of the call ends it. It should be well below the deadlines of
	// the callers: who gives up before it is over gets no Fallback, and is no sign of an outage. In
	// memory there is nothing to wait for.
	Timeout time.Duration

	// Fallback decides while Redis cannot answer, typically one from NewLocal. Its decisions are
	// Degraded, and by its own limits: k processes that fall back each admit up to its Max, beside
	// what Redis admitted before. It must not have a Fallback itself.
	Fallback *Limiter `json:"-"`

	// DenialCache is how many denied events to remember; 0 is none. After the second denial of an
	// event, the same attempt on it (as many units) is denied here and costs Redis nothing: the
	// client has Redis tell it of changes of the event's key (server-assisted client-side caching),
	// and the denial ends with the first change, such as a Reset, a Refund or an admission
	// anywhere, or with its RetryAfter. What is told within the round trip in which Redis tells of
	// a change, and 0.1 ms, can still be the denial; so it is for up to 12 s, or as long as the
	// client's keep-alive and ConnWriteTimeout are together, if the connection falls silent. In a
	// remembered denial, Used and Remaining are as they were when Redis was last asked, and the
	// waits are up to date.
	//
	// The client must not have DisableCache, nor track with NOLOOP or by prefixes; one that does
	// not keep what it looks at is noticed, told of as CacheOff, and asked no more. AllowEach does
	// without it. It does not go with CountDenied, nor with Now, nor in memory.
	DenialCache int

	// MaxEvents bounds how many events a limiter in memory holds; 0 is no bound, except that a
	// Fallback then holds 1,048,576. With one limit an event takes some 250 bytes. If there is no
	// room for another event, those that are forgotten make room: a new event causes a look at 64
	// others. If none is found, a new event is denied, with a RetryAfter of a second, or admitted,
	// and not counted. Events that are held keep their counts. Observation.Full reports it. A
	// Charge of a new event is an error then. On Redis, use maxmemory instead.
	MaxEvents int

	// AllowWhenFull admits new events while MaxEvents are held, instead of denying them.
	AllowWhenFull bool

	// Observe is told of every attempt and peek, with the context of its call, and of the begin and
	// end of an outage, with that of the call that noticed; not of those of the Fallback. It is
	// called by many goroutines at once, and the call that it is told of waits for it. Keep it
	// quick. It must not use the limiter: that could block both for ever.
	Observe func(ctx context.Context, o Observation) `json:"-"`
}

// Limiter decides about events. It comes from New or NewLocal, is safe for concurrent use and needs
// no Close. Its goroutines end when nothing is asked, except those that wait for a Redis that
// hangs: they end when rueidis gives up.
//
// Most callers should use Allow. Wait is for callers that can be held up; Peek and Inspect look
// without touching.
type Limiter struct {
	engine   engine.Limiter
	local    *counts // nil on Redis
	limits   []Limit
	fallback *Limiter
	observe  func(context.Context, Observation) // nil if nobody observes

	few [4]Limit // limits, unless there are more
}

// Errors that a caller may want to tell apart, by errors.Is.
var (
	// ErrEmptyEvent is returned for the event "", which everybody without a name would share.
	ErrEmptyEvent = engine.ErrEmptyEvent
	// ErrCost is returned for less than one unit.
	ErrCost = engine.ErrCost
	// ErrExceedsLimit is returned for more units than the Max of a limit: such a request can never
	// be admitted.
	ErrExceedsLimit = engine.ErrExceedsLimit
	// ErrOutage is returned when Redis could not answer, and nothing was counted: decide without
	// it, or try again later.
	ErrOutage = engine.ErrOutage
	// ErrUncertain is returned when no reply came: the attempt may or may not have been counted. It
	// was sent once only.
	ErrUncertain = engine.ErrUncertain
)

// New returns a limiter that keeps its counts in the Redis or Redis Cluster behind client. It sends
// nothing yet, so an error is about client or cfg, and says what to do.
//
// It notices when Redis, or a part of a cluster, cannot answer: after three failures in a row,
// those slots are left alone for a second, and calls get ErrOutage or the Fallback at once; then
// one call finds out whether they are back.
func New(client rueidis.Client, cfg Config) (*Limiter, error) {
	e, err := engine.New(client, cfg.engine(), appendEngine(nil, cfg.Limits, cfg.CountDenied))
	if err != nil {
		return nil, err
	}
	return newLimiter(*e, cfg), nil
}

// Connection is what limiters and guards of NewOn ask. Any number of them can share one. It comes
// from Connect, so that a service can start while Redis is down, or from package goredisgate, for
// services that use go-redis.
type Connection = engine.Connection

// Connect returns a Connection at once, though rueidis.NewClient fails while Redis is down. It dials in the background, and again a second after each
// failure, until dial returns a client, typically from rueidis.NewClient. The context of dial ends
// with Close.
func Connect(dial func(context.Context) (rueidis.Client, error)) *Connection {
	return engine.Connect(dial)
}

// NewOn is New on a Connection, from Connect or from package goredisgate. Until that has connected,
// answers are those of an outage: from the Fallback, or ErrOutage at once. Observe sees OutageBegan
// at the first such call, and OutageEnded at the first call after the connection was made.
func NewOn(conn *Connection, cfg Config) (*Limiter, error) {
	e, err := engine.NewOn(conn, cfg.engine(), appendEngine(nil, cfg.Limits, cfg.CountDenied))
	if err != nil {
		return nil, err
	}
	return newLimiter(*e, cfg), nil
}

// NewLocal returns the same limiter on counts in this process's memory: no Redis, same answers.
// Each has counts of its own, whatever its Name. It forgets events by itself and holds memory only
// for those that are still counted, unless it has a clock of its own in Config.Now. It takes no
// Fallback, as it never needs one.
func NewLocal(cfg Config) (*Limiter, error) {
	c := cfg.engine()
	local := newMemory(c)
	e, err := engine.NewLocal(c, appendEngine(nil, cfg.Limits, cfg.CountDenied), local)
	if err != nil {
		return nil, err
	}
	l := newLimiter(*e, cfg)
	l.local = local
	return l, nil
}

func newLimiter(e engine.Limiter, cfg Config) *Limiter {
	l := &Limiter{engine: e, fallback: cfg.Fallback, observe: cfg.Observe}
	l.limits = append(l.few[:0], cfg.Limits...)
	return l
}

// With returns the same limiter under other limits: for plans, or for customers with limits of
// their own. It shares all else with l: keys, counts, connection, circuit breaker, denial cache,
// Observe, and the Fallback, which then decides by these limits too. It sends nothing and needs no
// Close. Call it for each request, or keep what it returns.
//
// A limit whose Per both have goes on with the counts of the event, as after a deployment: a
// customer who has used 2 of 2/1h, and gets 4/1h, has 2 left. A limit with another Per starts at
// zero, and the counts of one that is left out stay until they are forgotten. One event can be
// counted for at most 31 different Per. The errors are those of New about limits.
func (l *Limiter) With(limits ...Limit) (*Limiter, error) {
	var few [4]engine.Limit
	e, err := l.made().With(appendEngine(few[:0], limits, l.engine.CountDenied))
	if err != nil {
		return nil, err
	}
	with := &Limiter{engine: e, local: l.local, fallback: l.fallback, observe: l.observe}
	with.limits = append(with.few[:0], limits...)
	return with, nil
}

// made returns the engine of a limiter from New, NewLocal or With. Any other limiter is a mistake
// in the program.
func (l *Limiter) made() *engine.Limiter {
	if l == nil || !l.engine.Made() {
		panic("slidegate: this limiter is nil or zero; make it with window.New or NewLocal")
	}
	return &l.engine
}

// Allow is shorthand for AllowN(ctx, event, 1).
func (l *Limiter) Allow(ctx context.Context, event string) (Decision, error) {
	return l.AllowN(ctx, event, 1)
}

// AllowN decides whether n units of the event may happen now, and counts all of them or none. A
// denial is a Decision, not an error. The errors are ErrEmptyEvent, ErrCost, ErrExceedsLimit,
// ErrOutage, ErrUncertain, those of ctx if it ended before anything was sent, and one that names
// the key if its value is not a record of this library, or can hold no more: 31 limits of all
// callers of one Name, or 2^53 units. In each of these but ErrUncertain nothing was counted.
func (l *Limiter) AllowN(ctx context.Context, event string, n int64) (Decision, error) {
	return l.decide(ctx, l.made().Attempt(), event, n)
}

// AllowUpTo grants as many of n units as every limit admits, and counts these: for batches of
// messages, prefetching, or quotas of jobs. Decision.Granted says how many, from 0 to n. If it is
// less than n, RetryAfter is how soon one more unit can be admitted. A limiter that counts denied
// attempts counts all n units. n can be more than any Max. Other errors are as those of AllowN.
func (l *Limiter) AllowUpTo(ctx context.Context, event string, n int64) (Decision, error) {
	return l.decide(ctx, l.made().AttemptSome(), event, n)
}

// Charge counts n units that were already used, even if a limit denies them. While a limit has more
// than Max in use, it admits nothing. Decision.Allowed reports whether all n units fitted, and
// RetryAfter how soon one more unit can be admitted if they did not.
//
// Such units are counted in buckets of Per/60 even under an exact limit, unless it has a
// Resolution. So they come back up to that much late, and so do units that are admitted into such a
// bucket. Without a reply, with ErrUncertain, they may not be counted. To be sure, charge again:
// they may then be counted twice. Other errors are as those of AllowN.
func (l *Limiter) Charge(ctx context.Context, event string, n int64) (Decision, error) {
	return l.decide(ctx, engine.Charge, event, n)
}

// Settle corrects d, which counted an estimate, to the actual cost of 0 units or more: it gives
// back the units that were too many, by Refund, or charges those that were too few, by Charge. Use
// it where a cost is known afterwards: tokens of a language model, bytes, cents.
//
// Settle a decision once. What Settle returns takes the place of d, with Counted as settled. After
// a charge, its other fields are those of the charge, but At stays; if the Fallback charged what
// Redis could not, it is Degraded and stands for these units alone.
//
// Errors are as those of Refund and Charge. After ErrUncertain do not settle fewer units again:
// that could give back somebody else's.
func (l *Limiter) Settle(ctx context.Context, event string, d Decision, actual int64) (Decision, error) {
	if e := l.made(); actual < 0 {
		return Decision{}, e.Wrap(fmt.Errorf("%w; a settled cost is 0 or more, not %d", ErrCost, actual))
	}
	if actual > d.Counted {
		return l.chargeExcess(ctx, event, d, actual-d.Counted)
	}
	back := d
	back.Counted -= actual
	if err := l.Refund(ctx, event, back); err != nil {
		return Decision{}, err
	}
	d.Counted = actual
	return d, nil
}

// chargeExcess charges units beside those that d counted, where these were counted.
func (l *Limiter) chargeExcess(ctx context.Context, event string, d Decision, units int64) (c Decision, err error) {
	if d.Degraded && l.fallback != nil {
		c, err = l.chargeFallback(ctx, event, units)
	} else {
		c, err = l.Charge(ctx, event, units)
	}
	if err == nil && d.Counted > 0 && c.Degraded == d.Degraded {
		c.At, c.Counted = d.At, d.Counted+c.Counted
	}
	return c, err
}

// chargeFallback is Charge in the Fallback.
func (l *Limiter) chargeFallback(ctx context.Context, event string, units int64) (d Decision, err error) {
	began, f := time.Now(), l.engine.FallbackUnderSame()
	reply, err := f.Decide(ctx, engine.Charge, event, units)
	reply.Degraded = true
	l.finish(ctx, &d, engine.Charge, units, &reply, err, began)
	return d, err
}

// AllowEach decides about many events at once: the answers are those of as many calls of Allow in
// order, in one round trip to each shard. Results are in the order of events, each with an error of
// its own, so a shard in trouble fails only its own events. If an event occurs twice, the first
// occurrence is decided first. More than 4,096 events go in several rounds, each within
// Config.Timeout. A slot range in which something got no reply in time, or nothing ran, gets no
// further rounds.
func (l *Limiter) AllowEach(ctx context.Context, events []string) []Result {
	began, results := time.Now(), make([]Result, len(events))
	for i, a := range l.made().AttemptEach(ctx, events) {
		results[i].Err = a.Err
		l.finish(ctx, &results[i].Decision, l.engine.Attempt(), 1, &a.Reply, a.Err, began)
	}
	return results
}

// Peek is shorthand for PeekN(ctx, event, 1).
func (l *Limiter) Peek(ctx context.Context, event string) (Decision, error) {
	return l.PeekN(ctx, event, 1)
}

// PeekN tells what AllowN would answer, but counts nothing and writes nothing. If it admits, Usage
// is as AllowN would leave it; if it denies, Usage is as it stands, even where denied attempts
// count. Errors are as those of AllowN, but never ErrUncertain.
func (l *Limiter) PeekN(ctx context.Context, event string, n int64) (Decision, error) {
	return l.decide(ctx, engine.Peek, event, n)
}

// Wait is shorthand for WaitN(ctx, event, 1).
func (l *Limiter) Wait(ctx context.Context, event string) (Decision, error) {
	return l.WaitN(ctx, event, 1)
}

// WaitN waits until n units are admitted and counted. It returns at once, with an error that
// matches context.DeadlineExceeded and the denial, if the deadline of ctx is sooner than that can
// be. Waiters are served in no order, and hold no place: each sleeps its wait and up to 5 % more
// (at most 100 ms), then asks again. Waiting is not hammering: where denied attempts count, those
// of WaitN do not. Where Config.Now is set, the sleep is still one of real time.
func (l *Limiter) WaitN(ctx context.Context, event string, n int64) (Decision, error) {
	for {
		d, err := l.decide(ctx, engine.Wait, event, n)
		if err != nil || d.Allowed {
			return d, err
		}
		if err := l.engine.Sleep(ctx, n, d.RetryAfter, d.Degraded); err != nil {
			return d, err
		}
	}
}

// Refund gives back the units that d counted, in every limit that still counts them; never below
// zero, and none as old as Per. d.Counted and d.At say how many and from which bucket: the first
// whose last event is not before d.At. A limit that is not in d.Usage is left alone; with no Usage
// at all, none is. A decision that counted nothing is no error and changes nothing. Refund a
// decision once: a second Refund gives back somebody else's units. Errors are as those of AllowN;
// after ErrUncertain the units may or may not be given back. A Degraded decision is given back in
// the Fallback; where there is none, nowhere.
func (l *Limiter) Refund(ctx context.Context, event string, d Decision) error {
	e := l.made()
	switch {
	case d.Counted <= 0 || d.Degraded && l.fallback == nil:
		return nil
	case d.Degraded:
		d.Degraded = false // to the Fallback it is a decision of its own
		return l.degraded().Refund(ctx, event, d)
	}
	return e.Refund(ctx, event, l.counted(d))
}

// degraded returns the Fallback, under the limits by which it decides for l.
func (l *Limiter) degraded() *Limiter {
	if !l.engine.Derived() {
		return l.fallback
	}
	return &Limiter{engine: l.engine.FallbackUnderSame(), local: l.fallback.local, limits: l.limits, observe: l.fallback.observe}
}

// Reset forgets the event: all its limits are as if never used, those of a Fallback too. A value
// that is not of this library is an error, and left alone. Errors are as those of AllowN.
func (l *Limiter) Reset(ctx context.Context, event string) error {
	return l.made().Reset(ctx, event)
}

// Inspect shows every bucket of every limit, for people. It writes nothing, and never asks the
// Fallback. RetryAfter in its Usage is for one unit. Errors are as those of AllowN, but never
// ErrUncertain.
func (l *Limiter) Inspect(ctx context.Context, event string) (Snapshot, error) {
	reply, err := l.made().Inspect(ctx, event)
	if err != nil {
		return Snapshot{}, err
	}
	s, err := l.snapshot(reply)
	s.Event, s.Key = event, l.engine.Key(event)
	return s, err
}
