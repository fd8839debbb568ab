package pipeline

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"
)

// A silence measures how long a queue has been waiting for a reply. It serves to distinguish a
// server that does not reply from a server whose replies this process has not noticed yet, and from
// requests that wait in the queue.
type silence struct {
	mu      sync.Mutex
	awaited int           // number of batches in flight
	since   time.Duration // when the last reply came or, if later, when a batch was sent while no other was in flight
	usual   time.Duration // how long a reply usually takes, as a moving average
	replies int           // number of replies; the first is not a sample, because the client may have to connect first
	enough  atomic.Int64  // how long a silence must last to count as a failure; 0 until there is a sample
}

const (
	// assumedUsual is how long a reply is assumed to take until there is a sample. The first reply
	// can take five round trips, to connect and to load the script.
	assumedUsual = 50 * time.Millisecond

	// A silence counts as a failure if it lasts slowness times as long as a reply usually takes.
	// While other replies arrive, a single reply counts as missing after slowReply times as long as
	// such a silence.
	slowness  = 4
	slowReply = 10

	// crowdTime is the time allowed for each waiting caller, because a process with many callers
	// notices replies late.
	crowdTime = 100 * time.Microsecond
)

// begin records that a batch is being sent at the time now.
func (s *silence) begin(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awaited++; s.awaited == 1 {
		s.since = now
	}
}

// end records that the batch sent at the time began is no longer in flight, and whether a server
// replied.
func (s *silence) end(began, now time.Duration, replied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awaited--; !replied {
		return
	}
	s.since = now
	if s.replies++; s.replies > 1 {
		s.sample(now - began)
	}
}

// sample adds the duration of a reply to the moving average, with a weight of an eighth. A duration
// much longer than usual is capped, so that a single stall is soon forgotten.
func (s *silence) sample(took time.Duration) {
	if s.replies == 2 {
		s.usual = took
	}
	s.usual += (min(took, 2*s.usual+minPatience) - s.usual) / 8
	s.enough.Store(int64(max(minPatience, slowness*s.usual)))
}

// least returns how long a silence must last to count as a failure.
func (s *silence) least() time.Duration {
	return cmp.Or(time.Duration(s.enough.Load()), slowness*assumedUsual)
}

// lasts returns how long the queue has been waiting without getting a reply.
func (s *silence) lasts(now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awaited == 0 {
		return 0
	}
	return now - s.since
}

// isSilent reports whether the queue has been waiting without a reply for at least least, plus
// crowdTime per waiting caller. The number of callers is crowd, or that of the callers waiting now
// if it is larger.
func (q *queue) isSilent(now, least time.Duration, crowd int64) bool {
	lasts := q.silence.lasts(now)
	return lasts > 0 && lasts >= least+time.Duration(max(crowd, q.conn.callers.Load()))*crowdTime
}
