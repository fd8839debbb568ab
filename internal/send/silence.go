package send

import (
	"sync"
	"sync/atomic"
	"time"
)

// A silence measures for how long a queue has waited for a reply in vain. Only time counts while
// something is in flight: if a connection breaks, the wait goes on with the next batch. A reply
// ends the silence.
type silence struct {
	since  atomic.Int64 // when the silence began, less the pauses; 0 while nothing is in flight
	waited atomic.Int64 // how long it lasted when something was in flight last

	mu       sync.Mutex // guards the other fields, and changes of those above
	inFlight int        // number of batches that were sent since the last reply
	replies  int
}

// sent records that a batch is being sent at the time now. Pass the result to ended.
func (s *silence) sent(now time.Duration) (replies int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight++; s.inFlight == 1 {
		s.since.Store(max(1, int64(now)-s.waited.Load()))
	}
	return s.replies
}

// ended records that a batch is no longer in flight, and whether a server replied.
func (s *silence) ended(now time.Duration, replies int, replied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case replied:
		s.replies++
		s.inFlight = 0
		s.waited.Store(0)
		s.since.Store(0)
	case replies == s.replies:
		if s.inFlight--; s.inFlight == 0 {
			s.waited.Store(int64(now) - s.since.Load())
			s.since.Store(0)
		}
	}
}

// lasts returns how long the silence has lasted at the time now, or 0 if there is none.
func (s *silence) lasts(now time.Duration) time.Duration {
	if since := s.since.Load(); since != 0 {
		return now - time.Duration(since)
	}
	return time.Duration(s.waited.Load())
}
