package httplimit_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// here is the event key of all requests in these tests.
const here = "here"

// transport returns a Transport whose requests all have the event key here. Its Outage is
// FailClosed and it discards its log, unless cfg sets others.
func transport(cfg httplimit.TransportConfig) http.RoundTripper {
	if cfg.Outage == "" {
		cfg.Outage = httplimit.FailClosed
	}
	if cfg.Event == nil {
		cfg.Event = func(*http.Request) string { return here }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return must(httplimit.NewTransport(cfg))
}

// inFlight returns an InFlight. Its Outage is FailClosed and its Key is everybody, unless cfg sets
// others.
func inFlight(cfg httplimit.InFlightConfig) *httplimit.InFlight {
	if cfg.Outage == "" {
		cfg.Outage = httplimit.FailClosed
	}
	if cfg.Key == nil {
		cfg.Key = everybody
	}
	return must(httplimit.NewInFlight(cfg))
}

// turns returns a pace limiter in memory.
func turns(texts ...string) *pace.Limiter {
	return must(pace.NewLocal(pace.Config{Name: "turns", Limits: limits(texts...)}))
}

// places returns an inflight limiter in memory.
func places(most int64) *inflight.Limiter {
	return must(inflight.NewLocal(inflight.Config{Name: "places", Max: most}))
}

// placesInRedis returns an inflight limiter on Redis, with its own Name. If a caller leaves during its
// call, the place can be held until the end of the TTL, which is within the minute of awaitFree.
func placesInRedis(tb testing.TB, most int64) *inflight.Limiter {
	return must(inflight.New(window.On(redistest.Client(tb)), inflight.Config{Name: redistest.Key(tb), Max: most, TTL: 30 * time.Second, Timeout: 10 * time.Second}))
}

// brief returns an inflight limiter of one place whose leases are lost after 100 ms.
func brief() *inflight.Limiter {
	return must(inflight.NewLocal(inflight.Config{
		Name: "places", Max: 1, TTL: 90 * time.Millisecond, Timeout: 30 * time.Millisecond, MaxHold: 100 * time.Millisecond,
	}))
}

// roundTripper is a Base that calls a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// counter is a Base that counts its calls.
type counter struct {
	http.RoundTripper
	calls atomic.Int64
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.calls.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// trackedBody is a request body that records whether it was closed.
type trackedBody struct {
	io.Reader
	once sync.Once
	open *atomic.Int64
}

func (b *trackedBody) Close() error {
	b.once.Do(func() { b.open.Add(-1) })
	return nil
}

// tracked returns a body that counts in open until it is closed.
func tracked(text io.Reader, open *atomic.Int64) io.ReadCloser {
	open.Add(1)
	return &trackedBody{Reader: text, open: open}
}

// held returns how many of the event's places are in use.
func held(tb testing.TB, l *inflight.Limiter, event string) int64 {
	return must(l.Inspect(context.WithoutCancel(tb.Context()), event)).Used
}

// checkHeld checks how many of the event's places are in use.
func checkHeld(tb testing.TB, l *inflight.Limiter, event string, want int64) {
	tb.Helper()
	if got := held(tb, l, event); got != want {
		tb.Errorf("%d places are in use, want %d", got, want)
	}
}

// awaitFree waits until all of the event's places are free.
func awaitFree(tb testing.TB, l *inflight.Limiter, event string) {
	tb.Helper()
	redistest.Eventually(tb, "the place is free", func() bool { return held(tb, l, event) == 0 })
}
