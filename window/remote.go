package window

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/lua"
)

// remote keeps the counts in Redis, where window.lua decides.
type remote struct {
	l      *Limiter
	client rueidis.Client
	script *rueidis.Lua
	limits []string // Per, Max and Resolution of each limit, as the script takes them

	made      time.Time
	cluster   bool
	expired   error        // of a call when its time is up
	abandoned atomic.Int32 // calls that have not come back from rueidis, though their callers left
	turning   sync.Mutex
	parts     [parts]part
}

func newRemote(client rueidis.Client, l *Limiter) *remote {
	r := &remote{l: l, client: client, script: lua.New(lua.Window), made: time.Now(), cluster: client.Mode() == rueidis.ClientModeCluster}
	r.expired = fmt.Errorf("nothing came within %v", l.cfg.Timeout)
	for _, limit := range l.cfg.Limits {
		r.limits = append(r.limits, integer(limit.Per.Milliseconds()), integer(limit.Max),
			integer(limit.resolution(l.cfg.CountDenied).Milliseconds()))
	}
	return r
}

func (r *remote) decide(ctx context.Context, v verb, event string, n int64) (Decision, error) {
	reply, err := r.run(ctx, string(v), event, n, r.limits...)
	if err != nil {
		return Decision{}, err
	}
	limits := r.l.cfg.Limits
	if len(reply) != 2+3*len(limits) {
		return Decision{}, explain(fmt.Errorf("the script replied %d integers for %d limits", len(reply), len(limits)), r.l.key(event), string(v))
	}
	usage := make([]Usage, len(limits))
	for i, limit := range limits {
		usage[i] = newUsage(limit, reply[3*i+2], reply[3*i+3], reply[3*i+4])
	}
	allowed, counted := reply[0] == 1, int64(0)
	if v == count || v == allow && allowed {
		counted = n
	}
	return newDecision(allowed, counted, utc(reply[1]), usage), nil
}

func (r *remote) refund(ctx context.Context, event string, d Decision) error {
	var args []string
	for i, limit := range r.l.cfg.Limits {
		if d.counted(limit) {
			args = append(args, r.limits[3*i:3*i+3]...)
		}
	}
	if args == nil {
		return nil
	}
	_, err := r.run(ctx, "refund", event, min(d.Counted, maxUnits), append(args, integer(d.At.UnixMilli()))...)
	return err
}

func (r *remote) reset(ctx context.Context, event string) error {
	_, err := r.run(ctx, "reset", event, 1, r.limits...)
	return err
}

func (r *remote) inspect(ctx context.Context, event string) (time.Time, []LimitState, error) {
	reply, err := r.run(ctx, "inspect", event, 1, r.limits...)
	if err != nil {
		return time.Time{}, nil, err
	}
	if !listsBuckets(reply, len(r.l.cfg.Limits)) {
		return time.Time{}, nil, fmt.Errorf("the script replied %d integers that are no snapshot of %d limits", len(reply), len(r.l.cfg.Limits))
	}
	at, reply := utc(reply[1]), reply[2:]
	states := make([]LimitState, len(r.l.cfg.Limits))
	for i, limit := range r.l.cfg.Limits {
		states[i].Usage = newUsage(limit, reply[0], reply[1], reply[2])
		for pairs := reply[4 : 4+2*reply[3]]; len(pairs) > 0; pairs = pairs[2:] {
			states[i].Buckets = append(states[i].Buckets, Bucket{Last: utc(pairs[0]), Units: pairs[1]})
		}
		reply = reply[4+2*reply[3]:]
	}
	return at, states, nil
}

// listsBuckets tells whether a reply to inspect is whole.
func listsBuckets(reply []int64, limits int) bool {
	at := int64(2)
	for range limits {
		if at+4 > int64(len(reply)) || reply[at+3] < 0 {
			return false
		}
		at += 4 + 2*reply[at+3]
	}
	return at == int64(len(reply))
}

// run runs the script, unless the part of the key is left alone.
func (r *remote) run(ctx context.Context, verb, event string, n int64, more ...string) ([]int64, error) {
	now, err := r.now()
	if err != nil {
		return nil, err
	}
	key := r.l.key(event)
	part, began := r.partOf(key), time.Since(r.made)
	may, probes := r.parts[part].enter(began)
	if !may {
		return nil, errLeftAlone
	}
	args := append(append(make([]string, 0, 16), verb, now, integer(n)), more...)
	reply, err := r.repeat(ctx, part, probes, key, args)
	r.learn(ctx, part, began, err)
	if err != nil {
		return nil, explain(err, key, verb)
	}
	return reply, nil
}

// repeat sends the script, and again only what certainly did not run: for at most patience, while there is time, and not once
// others have found that the part is to be left alone.
func (r *remote) repeat(ctx context.Context, part int, probes bool, key string, args []string) ([]int64, error) {
	end, up := r.end(ctx)
	for begin, pause := time.Now(), firstPause; ; pause *= 2 {
		reply, err := r.exec(ctx, up, key, args)
		if err == nil || !notRun(err) || time.Since(begin)+pause > patience || time.Until(end) < pause {
			return reply, err
		}
		if r.parts[part].until.Load() != 0 && !probes || sleep(ctx, pause) != nil {
			return nil, err
		}
	}
}

// end is when there is no more time for a call, and what tells of it: by Timeout, if the context does not end before.
func (r *remote) end(ctx context.Context) (end time.Time, up <-chan time.Time) {
	end, dated := ctx.Deadline()
	timeout := r.l.cfg.Timeout
	if timeout < 0 && !dated {
		return time.Now().Add(time.Hour), nil
	}
	if timeout < 0 || dated && time.Until(end) <= timeout {
		return end, nil
	}
	return time.Now().Add(timeout), time.After(timeout)
}

// now is the time that the script is told: that of Config.Now, or none.
func (r *remote) now() (string, error) {
	if r.l.cfg.Now == nil {
		return "", nil
	}
	ms, err := r.l.nowMS()
	return integer(ms), err
}

const (
	firstPause = 5 * time.Millisecond // before the first repetition; doubled each time
	patience   = time.Second          // how long a call is repeated that certainly did not run
)

// notRun tells whether err proves that the script did not run, though it may if it is sent again.
func notRun(err error) bool {
	if reply, ok := rueidis.IsRedisErr(err); ok {
		return reply.IsTryAgain() || reply.IsClusterDown() || reply.IsLoading() || strings.HasPrefix(reply.Error(), "MASTERDOWN")
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, rueidis.ErrNoSlot)
}

// explain says what an error means for the count. The script writes last and once, so an error reply means: not counted.
func explain(err error, key, verb string) error {
	reply, isReply := rueidis.IsRedisErr(err)
	looks := verb == string(peek) || verb == "inspect"
	switch {
	case isReply && ours(reply.Error()), errors.Is(err, errTooMany):
		return err
	case isReply || notRun(err) || looks:
		return fmt.Errorf("key %s: %w: %w", key, ErrOutage, err)
	}
	return fmt.Errorf("key %s: %w: %w", key, ErrUncertain, err)
}

// ours tells whether the script itself refused: it names the key and the remedy.
func ours(reply string) bool {
	return strings.HasPrefix(reply, "WRONGTYPE") || strings.HasPrefix(reply, "SLIDEGATE")
}

func integer(n int64) string { return strconv.FormatInt(n, 10) }
