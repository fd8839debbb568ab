package inflight_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/inflight"
)

// How do I run at most 5 exports of a customer at once? In a service, use New instead of NewLocal,
// so that all processes share the 5 places.
func ExampleLimiter_Acquire() {
	limiter, err := inflight.NewLocal(inflight.Config{Name: "exports", Max: 5})
	if err != nil {
		panic(err)
	}
	export := func(ctx context.Context, customer string) error {
		lease, err := limiter.Acquire(ctx, customer) // waits for a place
		if err != nil {
			return err
		}
		defer lease.Release(ctx) //nolint:errcheck // if it fails, the place is free after TTL
		work := lease.Context(ctx)
		for page := range 3 {
			if work.Err() != nil {
				return context.Cause(work) // the caller has given up, or the lease is lost
			}
			fmt.Println("page", page)
		}
		return nil
	}
	if err := export(context.Background(), "customer 42"); err != nil {
		panic(err)
	}
	// Output:
	// page 0
	// page 1
	// page 2
}

// How does a server respond with HTTP 429 while all places are taken, without waiting?
func ExampleLimiter_TryAcquire() {
	limiter, err := inflight.NewLocal(inflight.Config{Name: "exports", Max: 1})
	if err != nil {
		panic(err)
	}
	export := func(w http.ResponseWriter, r *http.Request) {
		lease, d, err := limiter.TryAcquire(r.Context(), "customer 42")
		switch {
		case err != nil:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		case lease == nil: // RetryAfter is a hint: a place can be free sooner or later than that
			w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfter/time.Second)+1))
			http.Error(w, fmt.Sprintf("%d of %d exports are running", d.Used, d.Max), http.StatusTooManyRequests)
		default:
			defer lease.Release(r.Context()) //nolint:errcheck // if it fails, the place is free after TTL
			_, _ = fmt.Fprint(w, "the export")
		}
	}
	answer := func() {
		w := httptest.NewRecorder()
		export(w, httptest.NewRequest(http.MethodGet, "/export", nil))
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	running, _, err := limiter.TryAcquire(context.Background(), "customer 42") // another export of this customer
	if err != nil {
		panic(err)
	}
	answer()
	if err := running.Release(context.Background()); err != nil {
		panic(err)
	}
	answer()
	// Output:
	// 429 1 of 1 exports are running
	// 200 the export
}
