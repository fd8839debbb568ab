package httplimit_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// newClient returns a client for an API that allows 50 requests per second from all our processes
// together.
func newClient() (*http.Client, error) {
	turns, err := pace.NewLocal(pace.Config{ // pace.New(conn, ...) for all processes
		Name:   "api",
		Limits: []window.Limit{window.Every(22 * time.Millisecond)}, // 50 in 1.1 s, which includes 0.1 s for the network
	})
	if err != nil {
		return nil, err
	}
	transport, err := httplimit.NewTransport(httplimit.TransportConfig{Turns: turns, Outage: httplimit.FailClosed})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}, nil
}

// How do I call an API no faster than it allows, and obey its Retry-After?
func ExampleNewTransport() {
	client, err := newClient()
	if err != nil {
		panic(err)
	}
	answers := []int{http.StatusTooManyRequests, http.StatusOK}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(answers[0])
		answers = answers[1:]
	}))
	defer api.Close()
	began := time.Now()
	for range 2 {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, api.URL, nil)
		if err != nil {
			panic(err)
		}
		response, err := client.Do(request) // waits for its turn
		if err != nil {
			panic(err)
		}
		_ = response.Body.Close()
		fmt.Println(response.StatusCode, "after a second:", time.Since(began) > 990*time.Millisecond)
	}
	// Output:
	// 429 after a second: false
	// 200 after a second: true
}

// How do I limit how many requests of a customer run at the same time?
func ExampleInFlight() {
	places, err := inflight.NewLocal(inflight.Config{Name: "exports", Max: 2}) // or inflight.New, to share places through Redis
	if err != nil {
		panic(err)
	}
	running, end := make(chan struct{}), make(chan struct{})
	export := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		running <- struct{}{}
		<-end // an export takes its time
		_, _ = io.WriteString(w, "the export")
	})
	limit, err := httplimit.NewInFlight(httplimit.InFlightConfig{
		Places: places,
		Key:    httplimit.Header("X-Account"), // which your authentication sets
		Outage: httplimit.FailOpen,
	})
	if err != nil {
		panic(err)
	}
	handler := limit.Wrap(export)

	ask := func() {
		r := httptest.NewRequest(http.MethodGet, "/export", nil)
		r.Header.Set("X-Account", "17")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Printf("%d, Retry-After %q\n", w.Code, w.Header().Get("Retry-After"))
	}
	done := make(chan struct{})
	for range 2 {
		go func() {
			ask()
			done <- struct{}{}
		}()
		<-running
	}
	ask() // a third one
	close(end)
	<-done
	<-done
	// Output:
	// 429, Retry-After "1"
	// 200, Retry-After ""
	// 200, Retry-After ""
}
