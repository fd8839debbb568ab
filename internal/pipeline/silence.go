package pipeline

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"
)

// A silence tells a server that does not reply from one whose replies this process has not noticed
// yet, and from callers that wait for their turn. It belongs to a queue.
type silence struct {
	mu      sync.Mutex
	awaited int           // how many times something was sent that is not over
	since   time.Duration // when something was last sent while nothing else was awaited, or a reply came
	usual   time.Duration // how long a reply takes, a moving average
	replies int           // so far; the first one is no sample, as the client may connect for it
	enough  atomic.Int64  // how long a silence must last to be a failure; 0 while replies are no sample
}

const (
	// assumedUsual is how long a reply is assumed to take while that is unknown. The first one can
	// need five round trips, to connect and to load the script.
	assumedUsual = 50 * time.Millisecond

	// slowness is how many times as long as usual a silence must last to be a failure, and
	// slowReply how many times as long as that a single reply can be late while others come.
	slowness  = 4
	slowReply = 10

	// crowdTime is for how long a caller may keep this process so busy that it notices replies late.
	crowdTime = 100 * time.Microsecond
)

// begin notes that something is sent.
func (s *silence) begin(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awaited++; s.awaited == 1 {
		s.since = now
	}
}

// end notes that what was sent at a time is over, and whether a server replied.
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

// sample adds to the moving average how long a reply took. The newest counts an eighth. One that took
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

// lasts returns how long a reply has been awaited and none has come.
func (s *silence) lasts(now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awaited == 0 {
		return 0
	}
	return now - s.since
}

// isSilent reports whether no server has replied for least, and for crowdTime more for each caller that
// waits, or that did so when the one who asks came.
func (q *queue) isSilent(now, least time.Duration, crowd int64) bool {
	lasts := q.silence.lasts(now)
	return lasts > 0 && lasts >= least+time.Duration(max(crowd, q.conn.callers.Load()))*crowdTime
}
