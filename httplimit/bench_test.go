package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// A sink is a response that costs nothing.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(status int)      { s.status = status }

// One limit, and three, that no benchmark uses up.
var (
	one   = []string{"1000000000000/1h"}
	three = []string{"1000000000000/5s", "1000000000000/1h", "1000000000000/1d"}
)

// BenchmarkRequest is what a request costs beside its server: with a bare handler, with the limiter alone, and with the middleware.
func BenchmarkRequest(b *testing.B) {
	redis := func(limits []string) httplimit.Limiter {
		return must(window.New(redistest.Client(b), window.Config{Name: redistest.Key(b), Limits: parsed(limits...)}))
	}
	run := func(name string, h http.Handler, want int) { b.Run(name, func(b *testing.B) { again(b, h, want) }) }
	wrapped := func(name string, cfg httplimit.Config, want int) {
		if cfg.Key == nil {
			cfg.Key = httplimit.Address
		}
		run(name, middleware(cfg).Wrap(fine), want)
	}
	run("bare", fine, 0)
	run("memory, the limiter alone, 1 limit", alone(inMemory(nil, one...)), 0)
	wrapped("memory, 1 limit", httplimit.Config{Limiter: inMemory(nil, one...)}, 0)
	wrapped("memory, 1 limit, AddressBehind", httplimit.Config{Limiter: inMemory(nil, one...), Key: must(httplimit.AddressBehind("10.0.0.0/8"))}, 0)
	wrapped("memory, 1 limit, CountOnly", httplimit.Config{Limiter: inMemory(nil, one...), CountOnly: failed}, 0)
	wrapped("memory, 3 limits", httplimit.Config{Limiter: inMemory(nil, three...)}, 0)
	full := inMemory(nil, "1/30d", "2/31d", "3/32d")
	_ = must(full.Allow(b.Context(), "10.0.0.1"))
	wrapped("memory, 3 limits, denied", httplimit.Config{Limiter: full}, http.StatusTooManyRequests)
	run("Redis, the limiter alone, 1 limit", alone(redis(one)), 0)
	wrapped("Redis, 1 limit", httplimit.Config{Limiter: redis(one)}, 0)
	wrapped("Redis, 1 limit, CountOnly", httplimit.Config{Limiter: redis(one), CountOnly: failed}, 0)
	wrapped("Redis, 3 limits", httplimit.Config{Limiter: redis(three)}, 0)
}

// alone asks a limiter as the middleware does, and does nothing with the answer.
func alone(l httplimit.Limiter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = must(l.AllowN(r.Context(), "198.51.100.7", 1))
		fine(w, r)
	})
}

// again sends the handler the same request again and again. Its last status tells whether it was what was to be measured; 0 is none.
func again(b *testing.B, h http.Handler, want int) {
	r := must(http.NewRequestWithContext(b.Context(), http.MethodGet, "/", nil))
	r.RemoteAddr = "10.0.0.1:50000"
	r.Header.Set("X-Forwarded-For", "198.51.100.7")
	w := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
	if w.status != want {
		b.Errorf("status %d, not %d", w.status, want)
	}
}

// BenchmarkRequestServed is the same with a server and a client, one request after the other on one connection.
func BenchmarkRequestServed(b *testing.B) {
	limiter := must(window.New(redistest.Client(b), window.Config{Name: redistest.Key(b), Limits: parsed(three...)}))
	for _, of := range []struct {
		name string
		h    http.Handler
	}{
		{"bare", fine},
		{"memory, 3 limits", middleware(httplimit.Config{Limiter: inMemory(nil, three...)}).Wrap(fine)},
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
