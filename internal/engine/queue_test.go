package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// senders returns how many goroutines send batches, once all goroutines wait.
func senders() int {
	synctest.Wait()
	stacks := make([]byte, 1<<23)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("engine.(*queue).run("))
}

// TestNoGoroutinesAtRest checks that no goroutine is left without requests, even after callers
// left.
func TestNoGoroutinesAtRest(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		mustAllow(t, l, "before")
		var callers []*caller
		for i := range 1000 {
			callers = append(callers, start(t.Context(), l, Allow, fmt.Sprint(i%300), 1))
		}
		l.AttemptEach(t.Context(), numbered(1000))
		for _, c := range callers {
			wantError(t, "a caller", c.wait().err, nil)
		}
		wantEqual(t, "senders after answers", senders(), 0)

		s.hold()
		for i := range 1000 {
			start(t.Context(), l, Allow, fmt.Sprint(i%300), 1)
		}
		pass(time.Second)
		s.release()
		wantEqual(t, "senders after a hang", senders(), 0)
		wantIdle(t, l)
	})
}

// length returns how many requests are in the queue.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// TestSendersAreBounded checks that a slot range has at most maxSenders senders, however many
// callers there are.
func TestSendersAreBounded(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		mustAllow(t, l, "before")
		s.hold()
		for i := range 500 {
			start(t.Context(), l, Allow, fmt.Sprint(i), 1)
		}
		if n := senders(); n > maxSenders || n < 1 {
			t.Errorf("%d senders", n)
		}
	})
}

// TestSlowYieldsAreRare checks that while other goroutines use all cores, a sender with an empty
// queue does not yield to them each time.
func TestSlowYieldsAreRare(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const times = 4
	q, yields := queue{redis: &redis{made: time.Now()}, senders: times}, 0
	for range times {
		var ran atomic.Int32
		var others sync.WaitGroup
		for range 6 {
			others.Go(func() {
				ran.Add(1)
				for began := time.Now(); time.Since(began) < slowYield/2; {
					continue
				}
			})
		}
		if q.take(&batch{}) {
			t.Fatal("it took something from an empty queue")
		}
		if ran.Load() > 0 {
			yields++
		}
		others.Wait()
	}
	if yields == times {
		t.Error("the sender waited for the others each time")
	}
}

// TestHungSendersAreReplaced checks that once callers have left all senders hanging, other senders
// take later requests.
func TestHungSendersAreReplaced(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		s.hold()
		for i := range maxSenders {
			arrive(ctx, l, Allow, fmt.Sprint("hung ", i), 1)
		}
		waits := arrive(t.Context(), l, Allow, "waits", 1)
		wantEqual(t, "received while senders hang", len(s.receivedCalls()), maxSenders)
		pass(100 * time.Millisecond)
		comes := arrive(t.Context(), l, Allow, "comes", 1)
		wantEqual(t, "received after", len(s.receivedCalls()), maxSenders+2)
		pass(100 * time.Millisecond)
		s.release()
		wantEqual(t, "took", waits.wait().took, 200*time.Millisecond)
		wantError(t, "the one that waited", waits.err, nil)
		wantEqual(t, "took", comes.wait().took, 100*time.Millisecond)
		wantError(t, "the one that came later", comes.err, nil)
		synctest.Wait()
		wantIdle(t, l)
	})
}

// TestPartlyLeftBatch checks that callers that stay with a batch get its replies, even if another
// sender has replaced its own.
func TestPartlyLeftBatch(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		occupySenders(t, s, l)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leaves := arrive(ctx, l, Allow, "leaves", 1)
		stay := fillBatch(t, l)
		s.chooseActions(func(c command) action {
			if c.key == l.Key("leaves") {
				return action{delay: 10 * time.Millisecond}
			}
			return action{}
		})
		s.release()
		pass(5 * time.Millisecond)
		cancel()
		wantError(t, "the one that leaves", leaves.wait().err, ErrUncertain)
		for _, c := range stay {
			wantError(t, "one that stays", c.wait().err, nil)
			wantEqual(t, "took", c.took, 10*time.Millisecond)
		}
		synctest.Wait()
		wantIdle(t, l)
	})
}

// TestMemoryIsBoundedWhileRedisHangs checks that callers that keep coming and leaving use no more
// memory after some point. Once Redis answers, requests succeed again.
func TestMemoryIsBoundedWhileRedisHangs(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		r, wave := &l.redis.ranges[0], 100
		mustAllow(t, l, "before")
		s.hold()
		full := false
		for waves := 0; waves < 1000 && !full; waves++ {
			full = callBriefly(t, l, wave)
			if n := r.length(); n > wave+2*maxBatch {
				t.Fatalf("%d are in the queue", n)
			}
			if n := int(r.abandoned.Load()); n > maxAbandoned+wave {
				t.Fatalf("%d are abandoned", n)
			}
		}
		if n := senders(); n > maxSenders+maxAbandoned+wave {
			t.Errorf("%d senders", n)
		}
		if !full {
			t.Fatalf("%d are abandoned, and none was refused", r.abandoned.Load())
		}
		s.release()
		pass(time.Second)
		wantEqual(t, "senders", senders(), 0)
		wantIdle(t, l)
		mustAllow(t, l, "after")
	})
}

// callBriefly starts callers that wait for 10 ms. It reports whether one was refused because too
// many others had left.
func callBriefly(t *testing.T, l *Limiter, n int) (full bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	var callers []*caller
	for i := range n {
		callers = append(callers, start(ctx, l, Allow, fmt.Sprint(i), 1))
	}
	for _, c := range callers {
		full = full || errors.Is(c.wait().err, errTooMany)
	}
	return full
}

// TestLeaversMakeRoomInTheQueue checks that while senders hang and some callers wait, callers that
// come and leave do not fill the queue.
func TestLeaversMakeRoomInTheQueue(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t), func(c *Config) { c.Timeout = -1 })
		occupySenders(t, s, l)
		stays := arrive(t.Context(), l, Allow, "stays", 1)
		for range 20 {
			callBriefly(t, l, 200)
			if n := l.redis.ranges[0].length(); n > 2*maxBatch {
				t.Fatalf("%d are in the queue", n)
			}
		}
		s.release()
		wantError(t, "the one that stays", stays.wait().err, nil)
		synctest.Wait()
		wantEqual(t, "executed", s.executed(), maxSenders+1)
		wantIdle(t, l)
	})
}
