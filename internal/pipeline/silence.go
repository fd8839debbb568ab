package pipeline

import (
	"sync"
	"sync/atomic"
	"time"
)

// A silence measures for how long a queue has sent requests without getting a reply. It begins with
// the first batch after a reply, and ends with the next reply. If the connection breaks, or if all
// callers leave, it lasts: that proves nothing about the server.
type silence struct {
	since atomic.Int64 // when the silence began; 0 if there is none

	mu      sync.Mutex    // guards the other fields, and changes of since
	awaited int           // number of batches that were sent during the silence, and are still in flight
	last    time.Duration // when the last batch was sent
}

// sent records that a batch is being sent at the time now.
func (s *silence) sent(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since.CompareAndSwap(0, max(1, int64(now)))
	s.awaited++
	s.last = now
}

// ended records that the batch sent at the given time is no longer in flight, and whether a server
// replied.
func (s *silence) ended(sent time.Duration, replied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch since := s.since.Load(); {
	case replied:
		s.since.Store(0)
		s.awaited = 0
	case since != 0 && max(1, int64(sent)) >= since:
		s.awaited--
	}
}

// lasts returns how long the silence has lasted at the time now, or 0 if there is none.
func (s *silence) lasts(now time.Duration) time.Duration {
	since := time.Duration(s.since.Load())
	if since == 0 {
		return 0
	}
	return now - since
}

// mayEnd reports whether a batch is in flight that was sent less than the given time ago.
func (s *silence) mayEnd(now, within time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.awaited > 0 && now-s.last < within
}
