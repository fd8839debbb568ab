// Package calls makes calls concurrently, and makes calls that outlive the requests that they
// belong to.
package calls

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// finishTime is how long a call that outlives its request may take.
const finishTime = 5 * time.Second

// Finish returns a context for a call that must be made even if ctx is done, such as a refund after
// the client has gone. The context has the values of ctx, and a timeout of 5 s.
func Finish(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), finishTime)
}

// Concurrently calls do concurrently for each index in [0, n), so that the calls share a round
// trip. It returns once all calls have returned. For the last index, and for each index for which
// inMemory returns true, it calls do in the caller's goroutine, because calls in memory do not
// wait. If a call panics, Concurrently panics with the same value. Otherwise a panic in another
// goroutine would crash the process even if the caller recovers.
func Concurrently(n int, inMemory func(i int) bool, do func(i int)) {
	var group sync.WaitGroup
	var panicked atomic.Pointer[any] // the value of the last call that panicked
	for i := range n {
		if i == n-1 || inMemory(i) {
			do(i)
			continue
		}
		group.Go(func() {
			defer func() {
				if value := recover(); value != nil {
					panicked.Store(&value)
				}
			}()
			do(i)
		})
	}
	group.Wait()
	if value := panicked.Load(); value != nil {
		panic(*value)
	}
}
