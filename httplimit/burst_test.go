package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// twoServers starts two servers that simulate two processes: each has its own limiter, with the
// same Name on the same Redis server.
func twoServers(t *testing.T, client rueidis.Client, reached *atomic.Int64) (addresses [2]string) {
	t.Helper()
	name := redistest.Key(t)
	for i := range addresses {
		l := must(window.New(window.On(client), window.Config{Name: name, Limits: limits("50/1h", "60/1d"), Timeout: time.Minute}))
		s := httptest.NewServer(middleware(httplimit.Config{Limiter: l, Key: address}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reached.Add(1)
			fine(w, r)
		})))
		t.Cleanup(s.Close)
		addresses[i] = s.URL
	}
	return addresses
}

// onRedis runs a test on one server and on a cluster.
func onRedis(t *testing.T, test func(t *testing.T, client rueidis.Client)) {
	t.Run("Redis", func(t *testing.T) { test(t, redistest.Client(t)) })
	t.Run("Cluster", func(t *testing.T) { test(t, redistest.Cluster(t)) })
}

// TestBurst sends ten requests from each of 64 clients to two servers, and checks that the servers
// together allow exactly the budget.
func TestBurst(t *testing.T) {
	onRedis(t, func(t *testing.T, redis rueidis.Client) {
		var reached, allowed, denied atomic.Int64
		servers := twoServers(t, redis, &reached)
		transport := &http.Transport{MaxIdleConnsPerHost: 64}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport, Timeout: time.Minute}
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				for j := range 10 {
					response, err := client.Do(request(t, http.MethodGet, servers[(i+j)%2], nil))
					if err != nil {
						t.Error(err)
						return
					}
					_ = response.Body.Close()
					switch response.StatusCode {
					case http.StatusOK:
						allowed.Add(1)
					case http.StatusTooManyRequests:
						denied.Add(1)
					}
				}
			})
		}
		all.Wait()
		if allowed.Load() != 50 || denied.Load() != 590 || reached.Load() != 50 {
			t.Errorf("%d allowed, %d denied, %d reached the handler", allowed.Load(), denied.Load(), reached.Load())
		}
	})
}
