package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
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
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) {
	http.DefaultClient.Timeout = time.Minute // so that a hang fails here
	redistest.Main(m)
}

func must[T any](v T, err error) T { return redistest.Must(v, err) }

// instance is a running proxy.
type instance struct {
	*Proxy
	url, admin string
	log        *logBuffer
}

// logBuffer is a log that can be read while it is being written.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logBuffer) count(part string) int { return strings.Count(l.String(), part) }

// startOrigin starts a server that counts the requests that reach it.
func startOrigin(tb testing.TB) (to *url.URL, reached *atomic.Int64) {
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

// startInstance starts an instance of a proxy.
func startInstance(tb testing.TB, cfg Config) *instance {
	tb.Helper()
	i := &instance{log: &logBuffer{}}
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

// limitedRoute returns a route with limits per IP address.
func limitedRoute(pattern string, limits ...string) Route {
	rt := Route{Pattern: pattern, Key: httplimit.Clients{}.Key}
	for _, text := range limits {
		rt.Limits = append(rt.Limits, must(window.ParseLimit(text)))
	}
	return rt
}

// status returns the status of the response to a GET.
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

// read returns the body of the response to a GET.
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

// counted returns how many requests of a route /metrics reports, for the given decision and who
// made it.
func (i *instance) counted(pattern, decision, by string) int {
	return int(testutil.ToFloat64(i.metrics.requests.WithLabelValues(pattern, decision, by)))
}

// sendConcurrently sends n requests to each URL, using 32 clients at the same time. It returns the
// number of responses by status.
func sendConcurrently(tb testing.TB, n int, urls ...string) map[int]int {
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

// testTimeout is long enough even on a busy machine.
const testTimeout = time.Minute

// newProxy returns a proxy in front of a server. Unless cfg has routes, each IP address may send
// 1,000,000 requests an hour.
func newProxy(to string, cfg Config) *Proxy {
	cfg.To = must(url.Parse(to))
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Routes == nil {
		cfg.Routes = []Route{limitedRoute("/", "1000000/1h")}
	}
	cfg.Name, cfg.Outage = "proxy", Local
	return must(New(cfg))
}

// startServer serves a handler until the test ends.
func startServer(t *testing.T, h http.Handler) (at string) {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// connect opens a connection to a server, for requests that no client library would send. It is
// closed after at most a minute.
func connect(t *testing.T, at string) net.Conn {
	conn := must(net.Dial("tcp", strings.TrimPrefix(at, "http://")))
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// reply is a response whose body has been read completely.
type reply struct {
	Status  string
	Early   []string // informational responses, such as 103
	Length  int64
	Chunked []string
	Header  http.Header
	Body    string
	Trailer http.Header
}

// ask sends a request, given as bytes, and returns the response.
func ask(t *testing.T, at, request string) (got reply) {
	t.Helper()
	conn := connect(t, at)
	go func() { _, _ = io.WriteString(conn, request) }() // the response may arrive before all of it is sent
	method, _, _ := strings.Cut(request, " ")
	for from := bufio.NewReader(conn); ; {
		r, err := http.ReadResponse(from, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%v to %.200s", err, request)
		}
		if r.StatusCode < 200 {
			if r.StatusCode != http.StatusContinue { // the proxy, the server, or both can send it
				got.Early = append(got.Early, fmt.Sprint(r.Status, r.Header["Link"]))
			}
			continue
		}
		text := must(io.ReadAll(r.Body))
		_ = r.Body.Close()
		return reply{r.Status, got.Early, r.ContentLength, r.TransferEncoding, r.Header, string(text), r.Trailer}
	}
}

// metricValue returns the value of the metric that begins with the given name and labels.
func metricValue(p *Proxy, begin string) string {
	w := httptest.NewRecorder()
	p.Admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if value, found := strings.CutPrefix(line, begin+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return "nothing"
}

// parseRequest parses a request with the given first line and header fields.
func parseRequest(line string, fields ...string) (*http.Request, error) {
	return http.ReadRequest(bufio.NewReader(strings.NewReader(line + " HTTP/1.1\r\n" + strings.Join(append(fields, "", ""), "\r\n"))))
}

func (i *instance) health(tb testing.TB) (h health) {
	tb.Helper()
	if err := json.Unmarshal([]byte(read(tb, i.admin+"/healthz")), &h); err != nil {
		tb.Fatal(err)
	}
	return h
}

// await waits until done returns true.
func (i *instance) await(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for began := time.Now(); !done(); {
		if time.Since(began) > testTimeout {
			tb.Fatalf("waited %v for %s\n%s", testTimeout, what, i.log)
		}
	}
}
