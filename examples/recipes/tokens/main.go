// Command tokens limits the tokens of a language model, whose number is known only after an
// answer: go run ./examples/recipes/tokens
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

var errTooManyTokens = errors.New("too many tokens")

// askModel stands in for the call to a language model. It returns the tokens that the call used.
func askModel(_ context.Context, prompt string, _ int64) (answer string, used int64, err error) {
	if prompt == "fail" {
		return "", 0, errors.New("the model is overloaded")
	}
	return "42", 1_250, nil
}

// complete calls the model, and charges the customer the tokens that the answer actually used.
func complete(ctx context.Context, limiter *window.Limiter, customer, prompt string, maxTokens int64) (string, error) {
	d, err := limiter.AllowN(ctx, customer, int64(len(prompt))/4+maxTokens) // a token has about four bytes
	if err != nil {
		return "", err
	}
	if !d.Allowed {
		return "", fmt.Errorf("%w: retry after %v", errTooManyTokens, d.RetryAfter)
	}
	answer, used, err := askModel(ctx, prompt, maxTokens) // used is 0 if the model did not answer
	_, unsettled := limiter.Settle(context.WithoutCancel(ctx), customer, d, used)
	return answer, errors.Join(err, unsettled)
}

// newHandler returns an HTTP handler that does the same.
func newHandler(limiter *window.Limiter) (http.Handler, error) {
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter,
		Key:     httplimit.Header("X-Account"), // which your authentication sets
		Outage:  httplimit.FailClosed,
		Cost: func(r *http.Request) int64 {
			return max(0, r.ContentLength)/4 + 8_000 // the estimate: prompt and longest answer
		},
		CostAfter: func(u httplimit.Used) int64 { return u.Units },
	})
	if err != nil {
		return nil, err
	}
	return limit.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, used, err := askModel(r.Context(), "six times seven?", 8_000)
		httplimit.SetCost(r.Context(), used)
		if err != nil {
			http.Error(w, "no answer", http.StatusBadGateway)
			return
		}
		_, _ = fmt.Fprintln(w, answer)
	})), nil
}

// quota limits requests and tokens of each customer together.
type quota struct{ requests, tokens *window.Limiter }

// complete calls the model if the customer has a request and enough tokens left. It charges the
// tokens that the answer actually used.
func (q quota) complete(ctx context.Context, customer, prompt string, maxTokens int64) (string, error) {
	j, err := window.AllowAll(ctx,
		window.Check{Limiter: q.requests, Event: customer},
		window.Check{Limiter: q.tokens, Event: customer, N: int64(len(prompt))/4 + maxTokens})
	if err != nil {
		return "", err
	}
	if !j.Allowed {
		return "", fmt.Errorf("%w: retry after %v", errTooManyTokens, j.RetryAfter)
	}
	answer, used, err := askModel(ctx, prompt, maxTokens)
	_, unsettled := q.tokens.Settle(context.WithoutCancel(ctx), customer, j.Decisions[1], used)
	return answer, errors.Join(err, unsettled)
}

// newLimiter returns a limiter that allows some units a minute.
func newLimiter(name string, perMinute int64) *window.Limiter {
	limiter, err := window.NewLocal(window.Config{Name: name, Limits: []window.Limit{window.PerMinute(perMinute)}}) // or window.New
	if err != nil {
		log.Fatal(err)
	}
	return limiter
}

// used returns how many units of a limiter are used.
func used(limiter *window.Limiter, event string) int64 {
	s, err := limiter.Inspect(context.Background(), event)
	if err != nil {
		log.Fatal(err)
	}
	return s.Limits[0].Used
}

func main() {
	ctx, tokens := context.Background(), newLimiter("tokens", 10_000)
	for _, prompt := range []string{"six times seven?", "fail", "six times seven?", "six times seven?"} {
		answer, err := complete(ctx, tokens, "customer 17", prompt, 8_000)
		if errors.Is(err, errTooManyTokens) {
			fmt.Println("denied")
			continue
		}
		fmt.Printf("%q, %v: %d tokens used\n", answer, err, used(tokens, "customer 17"))
	}

	handler, err := newHandler(tokens)
	if err != nil {
		log.Fatal(err)
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/completions", http.NoBody)
	r.Header.Set("X-Account", "17")
	handler.ServeHTTP(httptest.NewRecorder(), r)
	fmt.Println("HTTP:", used(tokens, "header X-Account 17"), "tokens used")

	q := quota{newLimiter("requests", 3), tokens}
	for range 3 {
		_, err := q.complete(ctx, "customer 18", "six times seven?", 8_000)
		fmt.Println(errors.Is(err, errTooManyTokens), used(q.requests, "customer 18"), "requests,", used(tokens, "customer 18"), "tokens")
	}
	// It prints:
	// "42", <nil>: 1250 tokens used
	// "", the model is overloaded: 1250 tokens used
	// "42", <nil>: 2500 tokens used
	// denied
	// HTTP: 1250 tokens used
	// false 1 requests, 1250 tokens
	// false 2 requests, 2500 tokens
	// true 2 requests, 2500 tokens
}
