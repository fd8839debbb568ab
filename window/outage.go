package window

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// A limiter finds out by itself which part of a cluster is in trouble, for each sixty-fourth of its slots: three failures in a
// row, and these slots are left alone for a second; then one call probes them, and the rest follow if it succeeds.
const (
	failuresInARow = 3
	leftAlone      = time.Second
	parts          = 64
)

// errLeftAlone is what callers get meanwhile.
var errLeftAlone = fmt.Errorf("%w: its last calls failed, so it is left alone for up to %v", ErrOutage, leftAlone)

// part is what is known of one sixty-fourth of the slots, or of a server that is no cluster. Times are those since the
// limiter was made.
type part struct {
	failures atomic.Int32 // in a row
	until    atomic.Int64 // the end of the time for which it is left alone; 0 if it is not
	success  atomic.Int64 // when the last call that succeeded ended, to a tenth of a second
	failure  atomic.Int64 // when the last failure was counted
	_        [36]byte     // keeps neighbours off one cache line
}

// enter tells whether a call may be made now. After an outage the first one probes, and has a second for it.
func (s *part) enter(now time.Duration) (may, probes bool) {
	until := s.until.Load()
	if until == 0 {
		return true, false
	}
	probes = now >= time.Duration(until) && s.until.CompareAndSwap(until, int64(now+leftAlone))
	return probes, probes
}

// succeeded is told of a reply, and returns whether that ends an outage.
func (s *part) succeeded(now time.Duration) (ended bool) {
	if s.failures.Load() != 0 {
		s.failures.Store(0)
	}
	if now-time.Duration(s.success.Load()) > 100*time.Millisecond {
		s.success.Store(int64(max(1, now)))
	}
	return s.until.Load() != 0 && s.until.Swap(0) != 0
}

// failed is told of a call that failed, and returns whether an outage begins with it. A call that began before the last
// success says nothing. Nor does one that broke off with its connection, if it began before the last failure: a connection
// breaks once, with all calls on it.
func (s *part) failed(began, now time.Duration, broke bool) (begins bool) {
	if int64(began) < s.success.Load() || broke && int64(began) < s.failure.Load() {
		return false
	}
	s.failure.Store(int64(now))
	if s.until.Load() != 0 {
		s.until.Store(int64(now + leftAlone))
		return false
	}
	return s.failures.Add(1) >= failuresInARow && s.until.CompareAndSwap(0, int64(now+leftAlone))
}

// gaveUp is told of a call that its caller ended. If it was a probe, the next call is one.
func (s *part) gaveUp(probed bool, now time.Duration) {
	if until := s.until.Load(); probed && until != 0 {
		s.until.CompareAndSwap(until, int64(max(1, now)))
	}
}

// steady tells whether a call can be trusted to come back by itself when its context ends: rueidis connects, and waits for
// a place in its queue, whatever the context. Where calls succeeded just now and few are under way, it does neither.
func (s *part) steady(now time.Duration) bool {
	last := s.success.Load()
	return last != 0 && now-time.Duration(last) < time.Second
}

// few is how many calls of one limiter rueidis certainly has room for: its queue takes 1024.
const few = 256

// partOf is the part that a key belongs to. A server that is no cluster is one part.
func (r *remote) partOf(key string) *part {
	if !r.cluster {
		return &r.parts[0]
	}
	return &r.parts[slotOf(key)*parts/slots]
}

const slots = 1 << 14

// slotOf is the hash slot of a key of ours, whose tag stands in the only braces: CRC-16/XMODEM, as the cluster specification
// of Redis has it.
func slotOf(key string) int {
	tag := key[strings.IndexByte(key, '{')+1 : len(key)-len(suffix)]
	crc := uint16(0)
	for i := range len(tag) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^tag[i]]
	}
	return int(crc % slots)
}

var crcTable = makeCRCTable()

func makeCRCTable() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
		table[i] = crc
	}
	return table
}

// undated is a context that does not tell its deadline, though it ends at it. A deadline would have rueidis close the
// connection, and fail the calls of others, unless its option AlwaysPipelining is set.
type undated struct{ context.Context }

// Deadline tells of none.
func (undated) Deadline() (time.Time, bool) { return time.Time{}, false }

// within bounds a call by Timeout, if its own context does not end sooner.
func (r *remote) within(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := r.l.cfg.Timeout
	if deadline, ok := ctx.Deadline(); timeout < 0 || ok && time.Until(deadline) <= timeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}

// isOutage tells whether an error means that Redis could not answer, or not in time.
func isOutage(err error) bool { return errors.Is(err, ErrOutage) || errors.Is(err, ErrUncertain) }

// exec sends the script once. It comes back when ctx ends, whatever rueidis waits for.
func (r *remote) exec(ctx context.Context, s *part, key string, args []string) ([]int64, error) {
	r.underWay.Add(1)
	if ctx.Done() == nil || s.steady(time.Since(r.made)) && r.underWay.Load() <= few {
		defer r.underWay.Add(-1)
		return r.send(ctx, key, args)
	}
	type reply struct {
		integers []int64
		err      error
	}
	replies := make(chan reply, 1)
	go func() {
		defer r.underWay.Add(-1)
		integers, err := r.send(ctx, key, args)
		replies <- reply{integers, err}
	}()
	select {
	case got := <-replies:
		return got.integers, got.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *remote) send(ctx context.Context, key string, args []string) ([]int64, error) {
	return r.script.Exec(undated{ctx}, r.client, []string{key}, args).AsIntSlice()
}

// learn tells the part how a call ended: one that Redis failed, not one that its caller ended, nor one that the script refused.
func (r *remote) learn(ctx context.Context, s *part, began time.Duration, probed bool, err error) {
	now := time.Since(r.made)
	reply, isReply := rueidis.IsRedisErr(err)
	switch {
	case err == nil || isReply && ours(reply.Error()):
		if s.succeeded(now) {
			r.observe(OutageEnded, s)
		}
	case !isReply && ctx.Err() != nil:
		s.gaveUp(probed, now)
	default:
		if s.failed(began, now, !isReply && !notRun(err) && !errors.Is(err, context.DeadlineExceeded)) {
			r.observe(OutageBegan, s)
		}
	}
}
