package remote

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
// row, and these slots are left alone for a second; then one call probes them, and the rest follow if it succeeds. Where two
// masters share a part, it is left alone with either.
const (
	failuresInARow = 3
	parts          = 64

	// LeftAlone is how long a part in trouble is left alone.
	LeftAlone = time.Second
)

// part is what is known of one sixty-fourth of the slots, or of a server that is no cluster. Times are those since the
// limiter was made.
type part struct {
	failures atomic.Int32 // in a row
	until    atomic.Int64 // the end of the time for which it is left alone; 0 if it is not
	success  atomic.Int64 // when the last call that succeeded ended, to a tenth of a second
	failure  atomic.Int64 // when the last failure was counted
	why      atomic.Value // the error that callers get while it is left alone
	_        [16]byte     // keeps neighbours off one cache line
}

// enter tells whether a call may be made now. After an outage the first one in a second may, as a probe.
func (s *part) enter(now time.Duration) (may, probes bool) {
	until := s.until.Load()
	if until == 0 {
		return true, false
	}
	probes = now >= time.Duration(until) && s.until.CompareAndSwap(until, int64(now+LeftAlone))
	return probes, probes
}

// succeeded is told of a reply, and returns whether that may end an outage.
func (s *part) succeeded(now time.Duration) (ends bool) {
	if s.failures.Load() != 0 {
		s.failures.Store(0)
	}
	if now-time.Duration(s.success.Load()) > 100*time.Millisecond {
		s.success.Store(int64(now))
	}
	return s.until.Load() != 0
}

// failed is told of a call that failed, and returns whether an outage may begin with it. A call that began before the last
// success says nothing. Nor does one that broke off with its connection, if it began before the last failure: a connection
// breaks once, with all calls on it.
func (s *part) failed(began, now time.Duration, broke bool) (begins bool) {
	if int64(began) < s.success.Load() || broke && int64(began) < s.failure.Load() {
		return false
	}
	s.failure.Store(int64(now))
	if until := s.until.Load(); until != 0 {
		s.until.CompareAndSwap(until, int64(now+LeftAlone))
		return false
	}
	return s.failures.Add(1) >= failuresInARow
}

// turn begins or ends an outage of a part, and tells of it, in this order for all that turn it. It begins with a cause.
func (r *Runner) turn(part int, begins bool, until time.Duration, cause error) {
	r.turning.Lock()
	defer r.turning.Unlock()
	s := &r.parts[part]
	if (s.until.Load() != 0) == begins {
		return // another call was first
	}
	if begins {
		s.why.Store(fmt.Errorf("%w: its last calls failed, so it is left alone for up to %v; the last one: %v", ErrOutage, LeftAlone, cause)) //nolint:errorlint // another call's error is only told
	}
	s.until.Store(int64(until))
	r.tell(part, begins)
}

// learn tells the part how a call ended: one that Redis failed, not one that its caller ended, nor one that the script refused.
func (r *Runner) learn(ctx context.Context, part int, began time.Duration, err error) {
	now, s := time.Since(r.made), &r.parts[part]
	reply, isReply := rueidis.IsRedisErr(err)
	switch {
	case err == nil || isReply && ours(reply.Error()):
		if s.succeeded(now) {
			r.turn(part, false, 0, nil)
		}
	case !isReply && !notRun(err) && ctx.Err() != nil:
	default:
		if s.failed(began, now, !isReply && !notRun(err) && !errors.Is(err, errExpired)) {
			r.turn(part, true, now+LeftAlone, err)
		}
	}
}

// partOf is the part that a key belongs to. A server that is no cluster is one part.
func (r *Runner) partOf(key string) int {
	if !r.cluster {
		return 0
	}
	return SlotOf(key) * parts / slots
}

const slots = 1 << 14

// SlotOf is the hash slot of a key of ours, whose tag stands in the only braces: CRC-16/XMODEM, as the cluster specification
// of Redis has it.
func SlotOf(key string) int {
	tag := key[strings.IndexByte(key, '{')+1 : strings.IndexByte(key, '}')]
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
