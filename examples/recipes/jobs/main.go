// Command jobs paces jobs of River or Asynq: go run ./examples/recipes/jobs
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// awaitTurn waits for a turn that comes soon: within the limiter's MaxAhead, such as a second. If
// the turn would come later, awaitTurn returns how long to wait before the job starts again.
func awaitTurn(ctx context.Context, turns *pace.Limiter, event string) (again time.Duration, err error) {
	r, err := turns.Reserve(ctx, event)
	if err != nil || !r.OK {
		return r.Delay, err
	}
	for wait := r.Delay; wait > 0 && err == nil; {
		select {
		case <-time.After(wait):
			wait, err = turns.Due(ctx, r) // more than 0 after a Pause
		case <-ctx.Done():
			return 0, errors.Join(ctx.Err(), turns.Cancel(ctx, r))
		}
	}
	return 0, err
}

// river stands in for github.com/riverqueue/river.
var river = struct{ JobSnooze func(time.Duration) error }{
	func(d time.Duration) error { return fmt.Errorf("snoozed for %v", d.Round(time.Second)) },
}

// riverWorker sends mail in River jobs.
type riverWorker struct{ turns *pace.Limiter }

func (w riverWorker) Work(ctx context.Context, _ struct{}) error {
	again, err := awaitTurn(ctx, w.turns, "mail")
	if err != nil {
		return err
	}
	if again > 0 {
		return river.JobSnooze(again)
	}
	return sendMail(ctx)
}

// laterError says when Asynq should start a task again.
type laterError struct{ After time.Duration }

func (e laterError) Error() string { return fmt.Sprintf("again after %v", e.After.Round(time.Second)) }

// processTask sends mail in Asynq tasks.
func processTask(ctx context.Context, turns *pace.Limiter) error {
	again, err := awaitTurn(ctx, turns, "mail")
	if err != nil {
		return err
	}
	if again > 0 {
		return laterError{again}
	}
	return sendMail(ctx)
}

// asynqConfig stands in for asynq.Config.
type asynqConfig struct {
	IsFailure      func(error) bool
	RetryDelayFunc func(retried int, err error, _ any) time.Duration
}

var asynqSettings = asynqConfig{
	IsFailure: func(err error) bool { return !errors.As(err, new(laterError)) }, // so it does not count as an attempt
	RetryDelayFunc: func(retried int, err error, _ any) time.Duration {
		if later := (laterError{}); errors.As(err, &later) {
			return later.After
		}
		return time.Duration(1+retried) * time.Minute
	},
}

func sendMail(context.Context) error { return nil }

func main() {
	now := time.Unix(1_700_000_000, 0)
	turns, err := pace.NewLocal(pace.Config{ // or pace.New
		Name: "mail", Limits: []window.Limit{window.Every(10 * time.Second)}, MaxAhead: time.Second,
		Now: func() time.Time { return now }, // a clock that stands still, only for this program
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	for range 2 {
		fmt.Println(riverWorker{turns}.Work(ctx, struct{}{}))
	}
	err = processTask(ctx, turns)
	fmt.Println(asynqSettings.IsFailure(err), asynqSettings.RetryDelayFunc(1, err, nil))
	// It prints:
	// <nil>
	// snoozed for 9s
	// false 9s
}
