package send

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/test/servertest"
)

// senders waits until all goroutines wait, and returns how many of them are senders.
func senders() int {
	synctest.Wait()
	stacks := make([]byte, 1<<23)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("send.(*queue).run("))
}

// length returns how many requests are in the queue.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// TestSlowYieldsAreRare checks that while other goroutines use all cores, a sender whose queue is
// empty does not yield to them every time.
func TestSlowYieldsAreRare(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const times = 4
	q, yields := officeOf(connection.On(nil)).masters.ranges[0].queue, 0
	q.senders = times
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

// TestHungSendersAreReplaced checks that if all senders hang and their callers have left, other
// senders take later requests.
func TestHungSendersAreReplaced(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		s.Hold()
		for i := range maxSenders {
			arrive(ctx, l, fmt.Sprint("hung ", i))
		}
		waits := arrive(t.Context(), l, "waits")
		wantEqual(t, "received while senders hang", len(s.Received()), maxSenders)
		servertest.Pass(100 * time.Millisecond)
		comes := arrive(t.Context(), l, "comes")
		wantEqual(t, "received after", len(s.Received()), maxSenders+2)
		servertest.Pass(100 * time.Millisecond)
		s.Release()
		wantEqual(t, "took", waits.wait().took, 200*time.Millisecond)
		wantError(t, "the caller that waited", waits.err, nil)
		wantEqual(t, "took", comes.wait().took, 100*time.Millisecond)
		wantError(t, "the caller that came later", comes.err, nil)
		synctest.Wait()
		wantIdle(t, l)
	})
}

// TestMemoryIsBoundedWhileRedisHangs checks that memory use levels off even if callers keep
// arriving and leaving, and that requests succeed again once Redis answers.
func TestMemoryIsBoundedWhileRedisHangs(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		q, shard, wave := l.office.masters.ranges[0].queue, l.first(), 100
		mustCount(t, l, "before")
		s.Hold()
		full := false
		for waves := 0; waves < 1000 && !full; waves++ {
			full = callBriefly(t, l, wave)
			if n := q.length(); n > wave+2*maxBatch {
				t.Fatalf("%d are in the queue", n)
			}
			if n := int(shard.abandoned.Load()); n > 2*maxAbandoned {
				t.Fatalf("%d are abandoned", n)
			}
		}
		if n := senders(); n > maxSenders+2*maxAbandoned {
			t.Errorf("%d senders", n)
		}
		if !full {
			t.Fatalf("%d are abandoned, but none was refused", shard.abandoned.Load())
		}
		for range 3 { // the refusal counts as a failure
			servertest.Pass(100 * time.Millisecond)
			callBriefly(t, l, 1)
		}
		wantEqual(t, "open", shard.IsOpen(), true)
		s.Release()
		servertest.Pass(time.Second)
		wantEqual(t, "senders", senders(), 0)
		wantIdle(t, l)
		mustCount(t, l, "after")
	})
}

// callBriefly starts n callers that leave after 10 ms. It reports whether a caller was refused
// because too many others had left.
func callBriefly(t *testing.T, l *line, n int) (full bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	var callers []*attempt
	for i := range n {
		callers = append(callers, start(ctx, l, fmt.Sprint(i)))
	}
	for _, c := range callers {
		full = full || strings.Contains(fmt.Sprint(c.wait().err), "whose callers have left")
	}
	return full
}

// TestLeaversMakeRoomInTheQueue checks that while senders hang and some callers wait, callers that
// arrive and leave do not fill the queue.
func TestLeaversMakeRoomInTheQueue(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t), func(l *line) { l.Timeout = -1 })
		occupySenders(t, s, l)
		stays := arrive(t.Context(), l, "stays")
		for range 20 {
			callBriefly(t, l, 200)
			if n := l.office.masters.ranges[0].queue.length(); n > 2*maxBatch {
				t.Fatalf("%d are in the queue", n)
			}
		}
		s.Release()
		wantError(t, "the caller that stays", stays.wait().err, nil)
		synctest.Wait()
		wantEqual(t, "executed", s.Executed(), maxSenders+1)
		wantIdle(t, l)
	})
}

// beside returns another line on the Connection of l.
func beside(l *line, timeout time.Duration) *line {
	return &line{Pipeline: New(l.office.conn, "test", l.log.recorder()), Timeout: timeout, script: l.script, log: l.log}
}

// TestManyRequestsDelayNoOtherLimiter checks that a limiter's requests join the next batch even if
// another limiter has many more requests that arrived earlier.
func TestManyRequestsDelayNoOtherLimiter(t *testing.T) {
	conn := connection.On(nil)
	many, few := &line{Pipeline: New(conn, "many", nil)}, &line{Pipeline: New(conn, "few", nil)}
	q := many.office.masters.ranges[0].queue
	q.senders = maxSendersInAll // so that no sender is started
	for range 16 * maxBatch {
		q.put(&Request{shard: many.first()})
	}
	for range 2 {
		q.put(&Request{shard: few.first()})
	}
	b := many.office.newBatch(q)
	q.take(b)
	taken := map[*lane]int{}
	for _, r := range b.requests {
		taken[&r.shard.lane]++
	}
	wantEqual(t, "taken", []int{taken[&many.first().lane], taken[&few.first().lane]}, []int{maxBatch - 2, 2})
}

// TestAbandonedRequestsRefuseNoOtherLimiter checks that abandoned requests of one limiter do not
// keep another limiter from sending.
func TestAbandonedRequestsRefuseNoOtherLimiter(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		other := beside(l, time.Minute)
		mustCount(t, l, "before")
		s.Hold()
		for full := false; !full; {
			full = callBriefly(t, l, 100)
		}
		waits := arrive(t.Context(), other, "other")
		s.Release()
		wantError(t, "other", waits.wait().err, nil)
		servertest.Pass(time.Second)
		wantIdle(t, l)
		wantIdle(t, other)
	})
}

// TestOneRoundTrip checks that simultaneous calls to several limiters do not wait for one another.
func TestOneRoundTrip(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		lines := []*line{newLine(t, s.Client(t))}
		for range maxSendersInAll - maxSenders {
			lines = append(lines, beside(lines[0], time.Second))
		}
		s.Hold()
		var callers []*attempt
		for i, l := range lines {
			callers = append(callers, arrive(t.Context(), l, fmt.Sprint(i)))
		}
		wantEqual(t, "sent at once", len(s.Received()), len(lines))
		s.Release()
		for _, c := range callers {
			wantError(t, "a caller", c.wait().err, nil)
		}
	})
}
