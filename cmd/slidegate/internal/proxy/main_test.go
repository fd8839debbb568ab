package proxy

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// instance is a proxy that listens.
type instance struct {
	*Proxy
	url, admin string
	log        *lines
}

// lines are those of a log, which can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) count(part string) int { return strings.Count(l.String(), part) }

// origin is a server that counts what reaches it.
func origin(tb testing.TB) (to *url.URL, reached *atomic.Int64) {
	reached = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		_, _ = io.WriteString(w, "fine")
	}))
	tb.Cleanup(s.Close)
	to, err := url.Parse(s.URL)
	if err != nil {
		tb.Fatal(err)
	}
	return to, reached
}

// listen makes an instance of a proxy to a server.
func listen(tb testing.TB, cfg Config) *instance {
	tb.Helper()
	i := &instance{log: &lines{}}
	cfg.Log = slog.New(slog.NewTextHandler(i.log, nil))
	if cfg.Name == "" {
		cfg.Name = "proxy"
	}
	var err error
	if i.Proxy, err = New(cfg); err != nil {
		tb.Fatal(err)
	}
	public, admin := httptest.NewServer(i), httptest.NewServer(i.Admin())
	tb.Cleanup(public.Close)
	tb.Cleanup(admin.Close)
	i.url, i.admin = public.URL, admin.URL
	return i
}

// limited is a route with limits for each address.
func limited(pattern string, limits ...string) Route {
	rt := Route{Pattern: pattern, Key: httplimit.Address}
	for _, text := range limits {
		rt.Limits = append(rt.Limits, must(window.ParseLimit(text)))
	}
	return rt
}

// status is what a GET of a URL answers.
func status(tb testing.TB, url string) int {
	tb.Helper()
	res, err := http.Get(url)
	if err != nil {
		tb.Error(err)
		return 0
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	if err != nil {
		tb.Error(err)
	}
	return res.StatusCode
}

// read is the body of a GET.
func read(tb testing.TB, url string) string {
	tb.Helper()
	res, err := http.Get(url)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return string(body)
}

// counted is how many requests of a route /metrics tells.
func (i *instance) counted(pattern, decision, by string) int {
	return int(testutil.ToFloat64(i.metrics.requests.WithLabelValues(pattern, decision, by)))
}

// crowd sends n requests to each of the URLs, by many clients at once, and returns how many got each status.
func crowd(tb testing.TB, n int, urls ...string) map[int]int {
	tb.Helper()
	var mu sync.Mutex
	got, jobs := map[int]int{}, make(chan string)
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for url := range jobs {
				code := status(tb, url)
				mu.Lock()
				got[code]++
				mu.Unlock()
			}
		})
	}
	for range n {
		for _, url := range urls {
			jobs <- url
		}
	}
	close(jobs)
	all.Wait()
	return got
}

// long is enough for a machine that is busy.
const long = 20 * time.Second

// within fails the test if f takes longer.
func within(tb testing.TB, d time.Duration, what string, f func()) {
	tb.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > d {
		tb.Errorf("%s took %v", what, took)
	}
}
