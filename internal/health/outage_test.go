package health

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/test/servertest"
)

var errDown = errors.New("down")

// A reportLog records reports.
type reportLog struct {
	made    time.Time
	entries []string
}

func (l *reportLog) record(_ context.Context, kind string, _ *Failure) {
	l.entries = append(l.entries, fmt.Sprintf("%v: %s", time.Since(l.made), kind))
}

// TestOneOutage checks that parts that go out and come back are reported as a single outage,
// which ends when no part has been out for a second.
func TestOneOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := reportLog{made: time.Now()}
		o := Outage{Report: log.record}
		goes := func(part int) {
			o.changed(t.Context(), part, &Failure{Counted: ErrOutage, Cause: errDown})
		}
		returns := func(part int) { o.changed(t.Context(), part, nil) }
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
		if diff := cmp.Diff([]string{
			"0s: outage began", "1h0m1.999s: outage ended", "1h0m1.999s: outage began",
		}, log.entries); diff != "" {
			t.Error(diff)
		}
	})
}

// TestIdleParts checks that parts that no caller uses do not prolong an outage. If they
// fail later, they count as out again.
func TestIdleParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := reportLog{made: time.Now()}
		o := Outage{Report: log.record}
		failure := &Failure{Counted: ErrOutage, Cause: errDown}
		for _, part := range []int{1, 2, 3} {
			o.changed(t.Context(), part, failure)
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
		if diff := cmp.Diff([]string{
			"0s: outage began", "7s: outage ended", "7s: outage began",
		}, log.entries); diff != "" {
			t.Error(diff)
		}
	})
}

// TestOutageSaysWhy checks that the reports contain the reason, and get the context of the call.
func TestOutageSaysWhy(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "value")
	o := Outage{Report: func(ctx context.Context, kind string, failure *Failure) {
		if failure.Reason() != ReasonRefused || ctx.Value(key{}) != "value" {
			t.Errorf("%s: %+v", kind, failure)
		}
	}}
	o.changed(ctx, 0, &Failure{Counted: ErrOutage, Cause: &connection.UnsentError{Cause: errDown}})
}

// TestUnusedParts checks that a part that fails rarely prolongs an outage as long as it is in use, even
// while others answer, and that a part that is no longer in use does not.
func TestUnusedParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, used := reportLog{made: time.Now()}, true
		o := Outage{Report: log.record, Serves: func(int) bool { return used }}
		for range 5 {
			o.changed(t.Context(), 1, &Failure{Counted: ErrOutage, Cause: errDown})
			servertest.Pass(2 * idleTime)
			o.answered(t.Context())
		}
		used = false
		o.answered(t.Context())
		servertest.Pass(calmTime)
		synctest.Wait()
		if diff := cmp.Diff([]string{"0s: outage began", "51s: outage ended"}, log.entries); diff != "" {
			t.Error(diff)
		}
	})
}
