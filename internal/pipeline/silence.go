package pipeline

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"
)

// A silence distinguishes a server that does not reply from one whose replies this process has not
// noticed yet, and from callers that wait for their turn. It belongs to a queue.
type silence struct {
	mu      sync.Mutex
	awaited int           // number of batches in flight
	since   time.Duration // when something was last sent while nothing else was awaited, or when a reply came
	usual   time.Duration // how long a reply takes, as a moving average
	replies int           // number of replies; the first one is not a sample, because the client may connect for it
	enough  atomic.Int64  // how long a silence must last to be a failure; 0 until there is a sample
}

const (
	// assumedUsual is how long a reply is assumed to take while that is unknown. The first one can
	// need five round trips, to connect and to load the script.
	assumedUsual = 50 * time.Millisecond

	// slowness is how many times as long as usual a silence must last to be a failure. slowReply is
	// how many times that long a single reply can be late while others come.
	slowness  = 4
	slowReply = 10

	// crowdTime is how long one caller may keep this process so busy that it notices replies late.
	crowdTime = 100 * time.Microsecond
)

// begin records that something is sent.
func (s *silence) begin(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awaited++; s.awaited == 1 {
		s.since = now
	}
}

// end records that what was sent at a time is over, and whether a server replied.
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

// sample adds the time of a reply to the moving average. The newest counts an eighth. One that took
// much longer than usual counts less, so that a single stall is soon forgotten.
func (s *silence) sample(took time.Duration) {
	if s.replies == 2 {
		s.usual = took
	}
	s.usual += (min(took, 2*s.usual+minPatience) - s.usual) / 8
	s.enough.Store(int64(max(minPatience, slowness*s.usual)))
}

// least returns how long a silence must last to be a failure.
func (s *silence) least() time.Duration {
	return cmp.Or(time.Duration(s.enough.Load()), slowness*assumedUsual)
}

// lasts returns how long a reply has been awaited while none has come.
func (s *silence) lasts(now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awaited == 0 {
		return 0
	}
	return now - s.since
}

// isSilent reports whether no server has replied for least, plus crowdTime for each caller that
// waits now, or that was waiting when this caller arrived.
func (q *queue) isSilent(now, least time.Duration, crowd int64) bool {
	lasts := q.silence.lasts(now)
	return lasts > 0 && lasts >= least+time.Duration(max(crowd, q.conn.callers.Load()))*crowdTime
}
