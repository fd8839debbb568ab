package httplimit_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// turmoil is a handler that redirects, hangs, sends a long response, or refuses, depending on the
// path.
func turmoil(w http.ResponseWriter, r *http.Request) {
	_, _ = io.CopyN(io.Discard, r.Body, 100)
	switch r.URL.Path {
	case "/redirect":
		http.Redirect(w, r, "/long", http.StatusTemporaryRedirect) // 307 sends the body again
	case "/hang":
		<-r.Context().Done()
	case "/busy":
		w.Header().Set("Retry-After", "0.01")
		w.WriteHeader(http.StatusServiceUnavailable)
	case "/long":
		for range 20 {
			_, _ = io.WriteString(w, strings.Repeat("x", 4096))
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// TestTurmoil sends 1,000 requests over HTTP/1.1 and HTTP/2. Some contexts are canceled, some
// requests are redirected, and some bodies are read, some closed unread, and some abandoned. It
// checks that each attempt takes one turn, and that no turn is booked twice. In the end, all bodies
// are closed, all places are free, and no goroutine is left.
func TestTurmoil(t *testing.T) {
	for _, two := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %t", two), func(t *testing.T) {
			var taken struct {
				sync.Mutex
				turns []time.Time
			}
			l := must(pace.New(window.On(redistest.Client(t)), pace.Config{
				Name: redistest.Key(t), Limits: limits("1/1ms"), Timeout: time.Minute,
				Observe: func(_ context.Context, o window.Observation) {
					if o.Kind == window.KindAllowed {
						taken.Lock()
						defer taken.Unlock()
						taken.turns = append(taken.turns, o.Decision.At)
					}
				},
			}))
			p := placesInRedis(t, 100)
			_ = must(p.Acquire(t.Context(), "warm")).Release(t.Context()) // connects
			before := runtime.NumGoroutine()
			s := httptest.NewUnstartedServer(http.HandlerFunc(turmoil))
			s.EnableHTTP2 = two
			s.StartTLS()
			client := s.Client()
			base := &counter{RoundTripper: client.Transport}
			client.Transport = transport(httplimit.TransportConfig{Turns: l, Places: p, Base: base, MaxPause: 20 * time.Millisecond})
			var open atomic.Int64
			send1000(t, client, s.URL, &open)
			redistest.Eventually(t, "all bodies of requests are closed", func() bool { return open.Load() == 0 })
			awaitFree(t, p, here)
			client.CloseIdleConnections()
			s.CloseClientConnections()
			s.Close()
			redistest.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
			if n := int64(len(taken.turns)); n != base.calls.Load() {
				t.Errorf("%d turns for %d attempts", n, base.calls.Load())
			}
			slices.SortFunc(taken.turns, time.Time.Compare)
			if all := slices.CompactFunc(slices.Clone(taken.turns), time.Time.Equal); len(all) != len(taken.turns) {
				t.Errorf("%d attempts had only %d turns", len(taken.turns), len(all))
			}
			t.Logf("%d attempts", base.calls.Load())
		})
	}
}

// send1000 sends 1,000 requests, at most 100 at a time.
func send1000(t *testing.T, client *http.Client, url string, open *atomic.Int64) {
	t.Helper()
	var group sync.WaitGroup
	for worker := range 100 {
		group.Go(func() {
			for i := range 10 {
				sendOne(client, url, worker*10+i, open)
			}
		})
	}
	group.Wait()
}

// sendOne sends a request whose path, deadline and treatment depend on its number.
func sendOne(client *http.Client, url string, number int, open *atomic.Int64) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	path := []string{"/", "/redirect", "/hang", "/long", "/busy"}[number%5]
	if path == "/hang" || number%7 == 0 {
		cancel()
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(number%50)*time.Millisecond)
	}
	defer cancel()
	r := must(http.NewRequestWithContext(ctx, http.MethodPost, url+path, tracked(strings.NewReader("body"), open)))
	r.GetBody = func() (io.ReadCloser, error) { return tracked(strings.NewReader("body"), open), nil }
	response, err := client.Do(r)
	if err != nil {
		return
	}
	switch number % 3 {
	case 0:
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	case 1:
		_ = response.Body.Close()
	} // otherwise nobody reads the body, and ctx is canceled
}
