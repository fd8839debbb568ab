package window

import (
	"context"
	"math/rand/v2"
	"time"
)

// sleepUntil sleeps for d and a little more, so that waiters do not come back all at once. It does not begin to if ctx ends
// sooner.
func sleepUntil(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return context.DeadlineExceeded
	}
	return sleep(ctx, d+time.Duration(rand.Float64()*float64(min(d/20, 100*time.Millisecond))))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
