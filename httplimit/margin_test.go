package httplimit_test

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/httplimit"
)

// TestMargin counts how many requests an API receives in any second if requests take a random time
// of up to 100 ms to arrive. Turns at 50 per 1.1 s keep the API's limit of 50 per second, and turns
// at 50 per second do not.
func TestMargin(t *testing.T) {
	for limit, kept := range map[string]bool{"50/1s": false, "1/20ms": false, "50/1100ms": true, "1/22ms": true} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var arrived []time.Time
				random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the test must be reproducible
				api := roundTripper(func(*http.Request) (*http.Response, error) {
					mu.Lock()
					delay := time.Duration(random.Int64N(int64(100 * time.Millisecond)))
					mu.Unlock()
					<-time.After(delay)
					mu.Lock()
					defer mu.Unlock()
					arrived = append(arrived, time.Now())
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
				})
				client := transport(httplimit.TransportConfig{Turns: turns(limit), Base: api})
				var group sync.WaitGroup
				for range 40 {
					group.Go(func() {
						for range 50 {
							if response, err := client.RoundTrip(request(t, http.MethodGet, "http://x", nil)); err != nil || response.Body.Close() != nil {
								t.Error(err)
							}
						}
					})
				}
				group.Wait()
				most := mostIn(arrived, time.Second)
				if t.Logf("at most %d in a second", most); (most <= 50) != kept {
					t.Errorf("at most %d in a second", most)
				}
			})
		})
	}
}

// mostIn returns the maximum number of times within any interval of length span.
func mostIn(times []time.Time, span time.Duration) (most int) {
	slices.SortFunc(times, time.Time.Compare)
	first := 0
	for i, at := range times {
		for at.Sub(times[first]) >= span {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
