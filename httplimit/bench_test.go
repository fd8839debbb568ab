package httplimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// discardWriter is a ResponseWriter that costs nothing.
type discardWriter struct {
	header http.Header
	status int
}

func (s *discardWriter) Header() http.Header         { return s.header }
func (s *discardWriter) Write(b []byte) (int, error) { return len(b), nil }
func (s *discardWriter) WriteHeader(status int)      { s.status = status }

// oneLimit and threeLimits are so high that no benchmark uses them up.
var (
	oneLimit    = []string{"1000000000000/1h"}
	threeLimits = []string{"1000000000000/5s", "1000000000000/1h", "1000000000000/1d"}
)

// BenchmarkRequest measures a request without a server: with a bare handler, with only the limiter,
// and with the middleware.
func BenchmarkRequest(b *testing.B) {
	conn := window.On(redistest.Client(b))
	redis := func(texts []string) *window.Limiter {
		return must(window.New(conn, window.Config{Name: redistest.Key(b), Limits: limits(texts...)}))
	}
	run := func(name string, h http.Handler, want int) { b.Run(name, func(b *testing.B) { repeat(b, h, want) }) }
	wrapped := func(name string, cfg httplimit.Config, want int) {
		if cfg.Key == nil && cfg.Checks == nil {
			cfg.Key = address
		}
		run(name, middleware(cfg).Wrap(fine), want)
	}
	run("bare", fine, 0)
	run("memory, the limiter alone, 1 limit", alone(inMemory(nil, oneLimit...)), 0)
	wrapped("memory, 1 limit", httplimit.Config{Limiter: inMemory(nil, oneLimit...)}, 0)
	wrapped("memory, 1 limit, ClientsBehind", httplimit.Config{Limiter: inMemory(nil, oneLimit...), Key: must(httplimit.ClientsBehind("10.0.0.0/8")).Key}, 0)
	wrapped("memory, 1 limit, CountOnly", httplimit.Config{Limiter: inMemory(nil, oneLimit...), CountOnly: isFailure}, 0)
	wrapped("memory, 1 limit, Choose", httplimit.Config{Choose: alternate(inMemory(nil, oneLimit...), inMemory(nil, "1000000000000/1d"))}, 0)
	wrapped("memory, Unlimited", httplimit.Config{Limiter: httplimit.Unlimited}, 0)
	wrapped("memory, 1 limit, Skip", httplimit.Config{Limiter: inMemory(nil, oneLimit...), Skip: func(*http.Request) bool { return true }}, 0)
	wrapped("memory, Checks of 1 limiter", httplimit.Config{Checks: checksOf(checks(inMemory(nil, oneLimit...))...)}, 0)
	wrapped("memory, Checks of 2 limiters", httplimit.Config{Checks: checksOf(checks(inMemory(nil, oneLimit...), inMemory(nil, oneLimit...))...)}, 0)
	run("memory, 2 middlewares", nested(inMemory(nil, oneLimit...), inMemory(nil, oneLimit...)), 0)
	wrapped("memory, 3 limits", httplimit.Config{Limiter: inMemory(nil, threeLimits...)}, 0)
	full := inMemory(nil, "1/30d", "2/31d", "3/32d")
	_ = must(full.Allow(b.Context(), "10.0.0.1"))
	wrapped("memory, 3 limits, denied", httplimit.Config{Limiter: full}, http.StatusTooManyRequests)
	run("Redis, the limiter alone, 1 limit", alone(redis(oneLimit)), 0)
	wrapped("Redis, 1 limit", httplimit.Config{Limiter: redis(oneLimit)}, 0)
	wrapped("Redis, 1 limit, CountOnly", httplimit.Config{Limiter: redis(oneLimit), CountOnly: isFailure}, 0)
	wrapped("Redis, 1 limit, Choose", httplimit.Config{Choose: alternate(redis(oneLimit), redis([]string{"1000000000000/1d"}))}, 0)
	wrapped("Redis, Checks of 1 limiter", httplimit.Config{Checks: checksOf(checks(redis(oneLimit))...)}, 0)
	wrapped("Redis, Checks of 2 limiters", httplimit.Config{Checks: checksOf(checks(redis(oneLimit), redis(oneLimit))...)}, 0)
	run("Redis, 2 middlewares", nested(redis(oneLimit), redis(oneLimit)), 0)
	wrapped("Redis, 3 limits", httplimit.Config{Limiter: redis(threeLimits)}, 0)
	run("memory, the limiter alone, a place", alonePlace(places(1)), 0)
	run("memory, a place", inFlight(httplimit.InFlightConfig{Places: places(1)}).Wrap(fine), 0)
	run("Redis, the limiter alone, a place", alonePlace(placesInRedis(b, 1)), 0)
	run("Redis, a place", inFlight(httplimit.InFlightConfig{Places: placesInRedis(b, 1)}).Wrap(fine), 0)
}

// BenchmarkTransport measures a request that is not sent over a network: with only the base, with
// only the limiters, and with the Transport.
func BenchmarkTransport(b *testing.B) {
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("fine")), Request: r}, nil
	})
	bench := func(name string, client http.RoundTripper) {
		b.Run(name, func(b *testing.B) {
			r := request(b, http.MethodGet, "http://x", nil)
			b.ReportAllocs()
			for b.Loop() {
				response, err := client.RoundTrip(r)
				if err != nil || response.Body.Close() != nil {
					b.Fatal(err)
				}
			}
		})
	}
	inMemoryTurns := turns(oneLimit...)
	inRedis := must(pace.New(window.On(redistest.Client(b)), pace.Config{Name: redistest.Key(b), Limits: limits(oneLimit...), Timeout: time.Second}))
	bench("bare", base)
	bench("memory, the limiter alone, a turn", roundTripper(func(r *http.Request) (*http.Response, error) {
		return must(base(r)), inMemoryTurns.Wait(r.Context(), here)
	}))
	bench("memory, a turn", transport(httplimit.TransportConfig{Base: base, Turns: inMemoryTurns}))
	bench("memory, a place", transport(httplimit.TransportConfig{Base: base, Places: places(1)}))
	bench("memory, both", transport(httplimit.TransportConfig{Base: base, Turns: inMemoryTurns, Places: places(1)}))
	bench("Redis, the limiter alone, a turn", roundTripper(func(r *http.Request) (*http.Response, error) {
		return must(base(r)), inRedis.Wait(r.Context(), here)
	}))
	bench("Redis, a turn", transport(httplimit.TransportConfig{Base: base, Turns: inRedis}))
	bench("Redis, a place", transport(httplimit.TransportConfig{Base: base, Places: placesInRedis(b, 1)}))
	bench("Redis, both", transport(httplimit.TransportConfig{Base: base, Turns: inRedis, Places: placesInRedis(b, 1)}))
}

// alternate returns a Choose that alternates between two limiters. Requests must be sequential.
func alternate(one, two httplimit.Limiter) func(*http.Request) (httplimit.Limiter, error) {
	return func(*http.Request) (httplimit.Limiter, error) {
		one, two = two, one
		return one, nil
	}
}

// checks returns a check for each limiter, all with the same event.
func checks(limiters ...*window.Limiter) (all []window.Check) {
	for _, l := range limiters {
		all = append(all, window.Check{Limiter: l, Event: "198.51.100.7"})
	}
	return all
}

// nested returns a handler wrapped in two middlewares.
func nested(outer, inner httplimit.Limiter) http.Handler {
	wrap := func(l httplimit.Limiter, h http.Handler) http.Handler {
		return middleware(httplimit.Config{Limiter: l, Key: address}).Wrap(h)
	}
	return wrap(outer, wrap(inner, fine))
}

// alone returns a handler that calls a limiter as the middleware does, and ignores the decision.
func alone(l httplimit.Limiter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = must(l.AllowN(r.Context(), "198.51.100.7", 1))
		fine(w, r)
	})
}

// alonePlace returns a handler that takes a place and releases it.
func alonePlace(l *inflight.Limiter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, _, err := l.TryAcquire(r.Context(), "198.51.100.7")
		if err != nil {
			panic(err)
		}
		fine(w, r)
		_ = lease.Release(r.Context())
	})
}

// repeat sends the same request to h repeatedly. The last status must be want, so that the
// benchmark measures what its name says. If want is 0, the handler must set no status.
func repeat(b *testing.B, h http.Handler, want int) {
	r := must(http.NewRequestWithContext(b.Context(), http.MethodGet, "/", nil))
	r.RemoteAddr = "10.0.0.1:50000"
	r.Header.Set("X-Forwarded-For", "198.51.100.7")
	w := &discardWriter{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
	if w.status != want {
		b.Errorf("status %d, not %d", w.status, want)
	}
}

// BenchmarkRequestServed is like BenchmarkRequest, but with a server and a client that sends
// sequential requests on one connection.
func BenchmarkRequestServed(b *testing.B) {
	limiter := must(window.New(window.On(redistest.Client(b)), window.Config{Name: redistest.Key(b), Limits: limits(threeLimits...)}))
	for _, of := range []struct {
		name string
		h    http.Handler
	}{
		{"bare", fine},
		{"memory, 3 limits", middleware(httplimit.Config{Limiter: inMemory(nil, threeLimits...)}).Wrap(fine)},
		{"Redis, 3 limits", middleware(httplimit.Config{Limiter: limiter}).Wrap(fine)},
	} {
		b.Run(of.name, func(b *testing.B) {
			s := httptest.NewServer(of.h)
			defer s.Close()
			for b.Loop() {
				if got := send(b, s.Client(), request(b, http.MethodGet, s.URL, nil)); got.status != http.StatusOK {
					b.Fatal(got)
				}
			}
		})
	}
}
