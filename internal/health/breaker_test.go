package health

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/connection"
)

// TestOutagesAreReportedInOrder checks that the last report of a breaker says whether it is open,
// even if many requests end at the same time.
func TestOutagesAreReportedInOrder(t *testing.T) {
	opened := 0
	for round := range 3000 {
		b := &Breaker{Outage: &Outage{Report: func(context.Context, string, *Failure) {}}}
		var callers sync.WaitGroup
		for c := range 4 {
			callers.Go(func() {
				for n := range 10 {
					ends := []error{&connection.UnsentError{Cause: rueidis.ErrNoSlot}, nil}[min(1, (n+c+round)%5/4)]
					b.Record(context.Background(), 1<<62, 1<<62, ends)
				}
			})
		}
		callers.Wait()
		if b.IsOpen() {
			opened++
		}
		if reported := len(b.Outage.failed) > 0; reported != b.IsOpen() {
			t.Errorf("reported: %v, open: %v", reported, b.IsOpen())
		}
		b.Record(context.Background(), 1<<62, 1<<62, nil)
	}
	if opened < 100 || opened > 2900 {
		t.Errorf("weak test: open after %d of 3000 rounds", opened)
	}
}

// TestConnectionsBreakAtOnce checks that connections that break within sameCut count as one
// failure, and that a connection that breaks later counts as another.
func TestConnectionsBreakAtOnce(t *testing.T) {
	b := &Breaker{Outage: &Outage{}}
	for _, test := range []struct {
		began    time.Duration
		failures int32
	}{{0, 1}, {time.Millisecond, 1}, {sameCut, 1}, {sameCut + 2*time.Millisecond, 2}} {
		b.Record(t.Context(), time.Second+test.began, time.Second+test.began+time.Millisecond, io.EOF)
		if n := b.failures.Load(); n != test.failures {
			t.Errorf("%v: %d failures, want %d", test.began, n, test.failures)
		}
	}
}

// TestNoFailures checks that failures of requests that started before a success are ignored, and
// so are requests whose callers left.
func TestNoFailures(t *testing.T) {
	b := &Breaker{Outage: &Outage{Report: func(context.Context, string, *Failure) { t.Error("opened") }}}
	b.Record(t.Context(), 1*time.Second, 2*time.Second, nil)
	left, leave := context.WithCancel(t.Context())
	leave()
	for i := range 10 {
		b.Record(t.Context(), 1*time.Second, 3*time.Second, &Expired{})
		b.Record(left, time.Duration(i+3)*time.Second, time.Duration(i+4)*time.Second, context.Canceled)
	}
}
