package inflight_test

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.MainParallel(m) }

func must[T any](v T, err error) T { return redistest.Must(v, err) }

func equal[T any](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		tb.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// taken acquires a unit that must be free.
func taken(tb testing.TB, l *inflight.Limiter, event string) *inflight.Lease {
	tb.Helper()
	lease, d, err := l.TryAcquire(tb.Context(), event)
	if lease == nil || err != nil {
		tb.Fatalf("%+v, %v", d, err)
	}
	return lease
}

// denied tries to acquire a unit that must not be free.
func denied(tb testing.TB, l *inflight.Limiter, event string) inflight.Decision {
	tb.Helper()
	lease, d, err := l.TryAcquire(tb.Context(), event)
	if lease != nil || err != nil {
		tb.Fatalf("%v, %+v, %v", lease, d, err)
	}
	return d
}

func release(tb testing.TB, lease *inflight.Lease) {
	tb.Helper()
	if err := lease.Release(tb.Context()); err != nil {
		tb.Error(err)
	}
}
