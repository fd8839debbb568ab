package pace_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) { redistest.MainParallel(m) }

func must[T any](v T, err error) T { return redistest.Must(v, err) }

func errorOf[T any](_ T, err error) error { return err }

func equal[T any](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		tb.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// parsed parses limits such as 5/1h.
func parsed(texts ...string) (limits []window.Limit) {
	for _, text := range texts {
		limits = append(limits, must(window.ParseLimit(text)))
	}
	return limits
}

// every20 returns a configuration of one turn every 20 ms, with a MaxAhead of a second.
func every20() pace.Config {
	return pace.Config{Name: "api", Limits: parsed("1/20ms"), MaxAhead: time.Second}
}

// A fleet holds callers that wait for turns at the same time, under a fake clock.
type fleet struct {
	*testing.T
	limiter *pace.Limiter
	began   time.Time
	group   sync.WaitGroup

	mu   sync.Mutex
	came []arrival
}

// An arrival records that a caller's Wait returned, and how long after the start of the fleet.
type arrival struct {
	caller int
	after  time.Duration
	err    error
}

func newFleet(t *testing.T, cfg pace.Config) *fleet {
	return &fleet{T: t, limiter: must(pace.NewLocal(cfg)), began: time.Now()}
}

// wait lets a caller wait for n units, in the background.
func (f *fleet) wait(ctx context.Context, caller int, n int64) {
	f.group.Go(func() {
		err := f.limiter.WaitN(ctx, "e", n)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.came = append(f.came, arrival{caller, time.Since(f.began), err})
	})
}

// all waits until all calls have returned, and returns their arrivals in order.
func (f *fleet) all() []arrival {
	f.group.Wait()
	slices.SortStableFunc(f.came, func(a, b arrival) int { return cmp.Or(cmp.Compare(a.after, b.after), cmp.Compare(a.caller, b.caller)) })
	return f.came
}

// times returns the times of the arrivals that have no error.
func (f *fleet) times() (all []time.Duration) {
	for _, a := range f.all() {
		if a.err == nil {
			all = append(all, a.after)
		}
	}
	return all
}
