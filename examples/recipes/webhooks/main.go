// Command webhooks delivers webhooks without flooding their receivers:
// go run ./examples/recipes/webhooks
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// newWebhookClient returns a client that waits for the turns and places of a receiver.
func newWebhookClient(turns *pace.Limiter, places *inflight.Limiter) (*http.Client, error) {
	transport, err := httplimit.NewTransport(httplimit.TransportConfig{
		Turns:    turns, // for each host
		Places:   places,
		MaxPause: 10 * time.Minute, // the longest time for which a receiver can stop deliveries
		Outage:   httplimit.FailOpen,
	})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}, nil
}

var errLater = errors.New("the receiver is overloaded; deliver later")

// deliver sends a webhook. It waits at most 10 s for the receiver's limits.
func deliver(ctx context.Context, client *http.Client, to *url.URL, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if errors.Is(err, context.DeadlineExceeded) {
		return errLater // back to the queue
	}
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16)) // so that the connection can be reused
	_ = response.Body.Close()
	switch {
	case response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable:
		return errLater
	case response.StatusCode >= 300:
		return fmt.Errorf("%s answered %s", to.Host, response.Status)
	}
	return nil
}

func main() {
	received := 0
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if received++; received > 1 {
			w.Header().Set("Retry-After", "300")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	to, err := url.Parse(receiver.URL)
	if err != nil {
		log.Fatal(err)
	}
	turns, err := pace.NewLocal(pace.Config{Name: "webhooks", Limits: []window.Limit{window.PerSecond(10)}}) // or pace.New
	if err != nil {
		log.Fatal(err)
	}
	places, err := inflight.NewLocal(inflight.Config{Name: "webhooks", Max: 5}) // or inflight.New
	if err != nil {
		log.Fatal(err)
	}
	client, err := newWebhookClient(turns, places)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 { // the second one is refused, and the third is not sent
		fmt.Println(deliver(context.Background(), client, to, []byte(`{"paid":true}`)))
	}
	receiver.Close()
	fmt.Println("received:", received)
	// It prints:
	// <nil>
	// the receiver is overloaded; deliver later
	// the receiver is overloaded; deliver later
	// received: 2
}
