package replay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/connect"
)

// failed returns an error that says why Redis failed and what the user can do about it.
func (r *replay) failed(err error) error {
	return fmt.Errorf("%w, or leave out --redis to decide in memory", r.redis.Failed(err, "replay again when it works"))
}

// forget removes an event's keys from Redis.
func (w *worker) forget(ctx context.Context, event string) error {
	for _, l := range w.limiters {
		if err := l.Reset(ctx, event); err != nil {
			return w.r.failed(err)
		}
	}
	return nil
}

// forgetAll removes the keys of all events from Redis. If that fails, it retries until
// connect.Timeout has passed.
func (w *worker) forgetAll(ctx context.Context) (err error) {
	left := slices.Collect(maps.Keys(w.events))
	for begin, pause := time.Now(), time.NewTicker(connect.Timeout/20); ; <-pause.C {
		left = slices.DeleteFunc(left, func(event string) bool {
			failed := w.forget(ctx, event)
			err = cmp.Or(failed, err)
			return failed == nil
		})
		if len(left) == 0 {
			return nil
		}
		if time.Since(begin) > connect.Timeout {
			return err
		}
	}
}
