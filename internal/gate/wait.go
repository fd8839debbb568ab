package gate

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/slidegate/slidegate/internal/remote"
)

// sleepUntil sleeps for d and a little more, so that waiters do not come back all at once. It does not begin to if ctx ends
// sooner.
func sleepUntil(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return context.DeadlineExceeded
	}
	return remote.Sleep(ctx, d+time.Duration(rand.Float64()*float64(min(d/20, 100*time.Millisecond))))
}
