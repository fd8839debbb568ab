// Command model calls a language model that limits requests, tokens and concurrent calls:
// go run ./examples/recipes/model
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// tokenTurns is an http.RoundTripper that waits until the tokens of a request may be used.
type tokenTurns struct {
	turns *pace.Limiter
	next  http.RoundTripper
}

func (t tokenTurns) RoundTrip(r *http.Request) (*http.Response, error) {
	tokens := max(1, r.ContentLength/4+1_000) // the estimate: prompt and longest answer
	if err := t.turns.WaitN(r.Context(), r.URL.Host, tokens); err != nil {
		_ = r.Body.Close()
		return nil, err
	}
	return t.next.RoundTrip(r)
}

// newModelClient returns a client for a model that limits requests, tokens and concurrent calls. A
// request waits for its place first, then for its tokens, then for its turn.
func newModelClient(requests, tokens *pace.Limiter, places *inflight.Limiter) (*http.Client, error) {
	inner, err := httplimit.NewTransport(httplimit.TransportConfig{Turns: requests, Outage: httplimit.FailClosed})
	if err != nil {
		return nil, err
	}
	outer, err := httplimit.NewTransport(httplimit.TransportConfig{
		Places: places, Base: tokenTurns{tokens, inner}, Outage: httplimit.FailClosed,
	})
	return &http.Client{Transport: outer}, err
}

func main() {
	requests, err := pace.NewLocal(pace.Config{Name: "requests", Limits: []window.Limit{window.PerMinute(500)}}) // or pace.New
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := pace.NewLocal(pace.Config{Name: "tokens", Limits: []window.Limit{window.PerMinute(2_500)}})
	if err != nil {
		log.Fatal(err)
	}
	places, err := inflight.NewLocal(inflight.Config{Name: "model", Max: 20}) // or inflight.New
	if err != nil {
		log.Fatal(err)
	}
	client, err := newModelClient(requests, tokens, places)
	if err != nil {
		log.Fatal(err)
	}
	model := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	for range 3 {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, model.URL, strings.NewReader("six times seven?"))
		if err != nil {
			log.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			fmt.Println("the tokens come too late")
			continue
		}
		fmt.Println(response.Status)
		_ = response.Body.Close()
	}
	stop()
	model.Close()
	// It prints:
	// 200 OK
	// 200 OK
	// the tokens come too late
}
