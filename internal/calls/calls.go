// Package calls makes several calls at the same time, and calls that outlive the request that they
// belong to.
package calls

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// finishTime is how long such a call may take.
const finishTime = 5 * time.Second

// Finish returns a context for a call that must be made even if ctx has ended, such as a refund
// after the client has gone. It keeps the values of ctx, and ends after 5 s.
func Finish(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), finishTime)
}

// Concurrently calls do for each index in [from, to) at the same time, so that the calls share a
// round trip. It returns once all have returned. It calls do in the caller's goroutine for the last
// index and for those in memory, which wait for nothing. If a call panics, it panics with the same
// value.
func Concurrently(from, to int, inMemory func(i int) bool, do func(i int)) {
	if to-from == 1 {
		do(from)
		return
	}
	var group background
	for i := from; i < to; i++ {
		if i == to-1 || inMemory(i) {
			do(i)
		} else {
			group.Go(func() { group.guard(do, i) })
		}
	}
	group.Wait()
	if value := group.panicked.Load(); value != nil {
		panic(*value)
	}
}

// background makes calls in their own goroutines. A panic there would end the process, whatever the
// caller recovers.
type background struct {
	sync.WaitGroup

	panicked atomic.Pointer[any] // the value of the last call that panicked
}

// guard makes a call, and keeps the value of its panic.
func (b *background) guard(do func(i int), i int) {
	defer func() {
		if value := recover(); value != nil {
			b.panicked.Store(&value)
		}
	}()
	do(i)
}
