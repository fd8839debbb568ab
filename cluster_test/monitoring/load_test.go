package monitoring_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/rueidis"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/otelgate"
	"github.com/slidegate/slidegate/window"
)

// load is a set of programs under load, with the addresses of their metrics.
type load struct {
	redis   *underLoad
	proxies []string
	program string
}

// startLoad starts three proxies and a program. One proxy reaches neither Redis nor its server.
// Each gets calls until the test ends.
func startLoad(t *testing.T, slidegate string) load {
	t.Helper()
	redis := &underLoad{redistest.Start(t)}
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(origin.Close)
	l := load{redis: redis}
	for _, args := range [][]string{
		{"--to", origin.URL, "--redis", redis.Addr(), "--outage", "closed"},
		{"--to", origin.URL, "--redis", redis.Addr(), "--outage", "local", "--name", "other", "--shadow"},
		{"--to", "http://127.0.0.1:1", "--redis", "127.0.0.1:1", "--outage", "open"},
	} {
		l.proxies = append(l.proxies, startProxy(t, slidegate, args))
	}
	l.program = startProgram(t, redis.Server)
	return l
}

// repeat makes calls until the test ends, each a few ms after the last.
func repeat(t *testing.T, call func(ctx context.Context, i int)) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			call(ctx, i)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// startProxy runs a proxy, and returns the address of its metrics.
func startProxy(t *testing.T, slidegate string, args []string) (admin string) {
	t.Helper()
	found := run(t, regexp.MustCompile(`msg=ready listen=(\S+) .*admin=(\S+)`), slidegate, append([]string{
		"proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--limit", "5/1h", "--route", "/large/ 1000000/1h", "--route", "/free/ none",
	}, args...)...)
	for _, path := range []string{"/", "/large/", "/free/"} {
		repeat(t, func(ctx context.Context, _ int) { request(ctx, "http://"+found[1]+path) })
	}
	return found[2]
}

// request sends a request, and ignores its outcome.
func request(ctx context.Context, to string) {
	r := must(http.NewRequestWithContext(ctx, http.MethodGet, to, http.NoBody))
	if res, err := http.DefaultClient.Do(r); err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

// startProgram starts limiters that report by otelgate, and returns the address of their metrics.
func startProgram(t *testing.T, redis *redistest.Server) (address string) {
	t.Helper()
	registry := client.NewRegistry()
	observe := must(otelgate.New(metric.NewMeterProvider(metric.WithReader(must(exporter.New(exporter.WithRegisterer(registry)))))))
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	t.Cleanup(server.Close)

	keeps, discards := redis.Client(t), redis.NewClient(t, func(o *rueidis.ClientOption) { o.DisableCache = true })
	cfg := window.Config{Name: "api", Limits: parseLimits("50/1s", "100000/1h"), Timeout: 500 * time.Millisecond, Observe: observe}
	api := must(window.New(keeps, cfg))
	cfg.Name, cfg.Limits, cfg.DenialCache = "cached", parseLimits("1/1h"), 10
	cached := must(window.New(keeps, cfg))
	cfg.Name = "uncached"
	cfg.Fallback = must(window.NewLocal(window.Config{Name: cfg.Name, Limits: cfg.Limits}))
	uncached := must(window.New(discards, cfg))
	full := must(window.NewLocal(window.Config{Name: "full", Limits: cfg.Limits, MaxEvents: 1, Observe: observe}))

	repeat(t, func(ctx context.Context, i int) { _, _ = api.Allow(ctx, fmt.Sprint(i%10)) })
	repeat(t, func(ctx context.Context, _ int) { api.AllowEach(ctx, []string{"e", "e"}); _, _ = api.Allow(ctx, "") })
	for _, l := range []*window.Limiter{uncached, cached} {
		repeat(t, func(ctx context.Context, _ int) { _, _ = l.Allow(ctx, "e") })
	}
	repeat(t, func(ctx context.Context, i int) { _, _ = full.Allow(ctx, fmt.Sprint(i)) })
	return must(url.Parse(server.URL)).Host
}

// underLoad is a Redis that can become slow, or hang.
type underLoad struct{ *redistest.Server }

// slow pauses the server ten times for 100 ms.
func (u *underLoad) slow(t *testing.T) {
	t.Helper()
	for range 10 {
		u.Pause(t)
		<-time.After(100 * time.Millisecond)
		u.Resume(t)
		<-time.After(100 * time.Millisecond)
	}
}

// hang pauses the server for 3 s, and calls ask every 500 ms.
func (u *underLoad) hang(t *testing.T, ask func()) {
	t.Helper()
	u.Pause(t)
	defer u.Resume(t)
	for range 6 {
		<-time.After(500 * time.Millisecond)
		ask()
	}
}
