package pipeline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/test/servertest"
)

// TestOneOutage checks that slot ranges that go out and come back are reported as a single outage,
// which ends when no slot range has been out for a second.
func TestOneOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log reportLog
		o := outage{report: log.recorder()}
		goes := func(slotRange int) {
			o.changed(t.Context(), slotRange, &Failure{Counted: ErrOutage, Cause: errNoClient})
		}
		returns := func(slotRange int) { o.changed(t.Context(), slotRange, nil) }
		goes(3)
		goes(5)
		returns(3)
		returns(5)
		servertest.Pass(calmTime - time.Millisecond)
		goes(7)
		servertest.Pass(time.Hour)
		returns(7)
		servertest.Pass(calmTime)
		synctest.Wait()
		goes(3)
		wantEqual(t, "reports", log.read(), []string{
			"0s: outage began", "1h0m1.999s: outage ended", "1h0m1.999s: outage began",
		})
	})
}

// TestIdleSlotRanges checks that slot ranges that no caller uses do not prolong an outage. If they
// fail later, they count as out again.
func TestIdleSlotRanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log reportLog
		o := outage{report: log.recorder()}
		failure := &Failure{Counted: ErrOutage, Cause: errNoClient}
		for _, slotRange := range []int{1, 2, 3} {
			o.changed(t.Context(), slotRange, failure)
		}
		for range 6 {
			servertest.Pass(time.Second)
			o.changed(t.Context(), 2, failure) // a probe fails
		}
		o.changed(t.Context(), 3, nil)
		o.changed(t.Context(), 2, nil)
		servertest.Pass(calmTime)
		synctest.Wait()
		o.changed(t.Context(), 1, failure)
		wantEqual(t, "reports", log.read(), []string{
			"0s: outage began", "7s: outage ended", "7s: outage began",
		})
	})
}

// TestOutageSaysWhy checks that the reports contain the reason, and get the context of the call.
func TestOutageSaysWhy(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "value")
	o := outage{report: func(ctx context.Context, kind string, failure *Failure) {
		if failure.Reason() != ReasonRefused || ctx.Value(key{}) != "value" {
			t.Errorf("%s: %+v", kind, failure)
		}
	}}
	o.changed(ctx, 0, &Failure{Counted: ErrOutage, Cause: &UnsentError{Cause: errNoClient}})
}
