package windowtest_test

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
	"github.com/slidegate/slidegate/windowtest"
)

var perHour = []window.Limit{window.PerHour(5)}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestDenyAfter checks that each event is denied after the given number of units.
func TestDenyAfter(t *testing.T) {
	l := windowtest.DenyAfter(2)
	for _, event := range []string{"a", "b"} {
		for i, want := range []bool{true, true, false, false} {
			d, err := l.Allow(t.Context(), event)
			if d.Allowed != want || err != nil || d.Allowed == (d.RetryAfter > 50*time.Minute) {
				t.Errorf("attempt %d on %s: %+v, %v", i+1, event, d, err)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("0 units are accepted")
		}
	}()
	windowtest.DenyAfter(0)
}

// TestConnections checks that calls of every kind of limiter fail as they should, every time and
// without a wait: no time may pass in the synctest bubble.
func TestConnections(t *testing.T) {
	for name, test := range map[string]struct {
		conn *window.Connection
		want error
	}{
		"Down":       {windowtest.Down(), window.ErrOutage},
		"Unanswered": {windowtest.Unanswered(), window.ErrUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				for what, call := range calls(t, test.conn) {
					for range 5 {
						if err := call(); !errors.Is(err, test.want) {
							t.Errorf("%s: %v", what, err)
						}
					}
				}
				if waited := time.Since(began); waited > 0 {
					t.Errorf("the calls took %v", waited)
				}
			})
		})
	}
}

// calls returns one call for each kind of limiter.
func calls(t *testing.T, conn *window.Connection) map[string]func() error {
	ctx := t.Context()
	w := must(window.New(conn, window.Config{Name: "w", Limits: perHour, DenialCache: 100}))
	a := must(ar1.New(conn, ar1.Config{Name: "a", Limits: []window.Limit{{Max: 5, Per: time.Hour}}}))
	p := must(pace.New(conn, pace.Config{Name: "p", Limits: perHour}))
	i := must(inflight.New(conn, inflight.Config{Name: "i", Max: 1}))
	g := must(login.New(conn, login.Config{Name: "g", Secret: []byte("0123456789abcdef")}))
	return map[string]func() error{
		"window": func() error { _, err := w.Allow(ctx, "e"); return err },
		"AllowAll": func() error {
			_, err := window.AllowAll(ctx, window.Check{Limiter: w, Event: "e"}, window.Check{Limiter: w, Event: "f"})
			return err
		},
		"ar1":      func() error { _, err := a.Allow(ctx, "e"); return err },
		"pace":     func() error { _, err := p.Reserve(ctx, "e"); return err },
		"inflight": func() error { _, _, err := i.TryAcquire(ctx, "e"); return err },
		"login":    func() error { _, err := g.Begin(ctx, "alice", netip.MustParseAddr("198.51.100.7")); return err },
	}
}
