package recipes

import (
	"context"
	"errors"
	"fmt"
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

// How do I limit the tokens of a language model, if their number is known only afterwards?
func Example_tokens() {
	ctx := context.Background()
	limiter, err := window.NewLocal(window.Config{Name: "tokens", Limits: []window.Limit{window.PerMinute(10_000)}})
	if err != nil {
		panic(err)
	}
	for _, prompt := range []string{"six times seven?", "fail", "six times seven?", "six times seven?"} {
		answer, err := complete(ctx, limiter, "customer 17", prompt, 8_000)
		if errors.Is(err, errTooManyTokens) {
			fmt.Println("denied")
			continue
		}
		s, _ := limiter.Inspect(ctx, "customer 17")
		fmt.Printf("%q, %v: %d tokens used\n", answer, err, s.Limits[0].Used)
	}
	// Output:
	// "42", <nil>: 1250 tokens used
	// "", the model is overloaded: 1250 tokens used
	// "42", <nil>: 2500 tokens used
	// denied
}

// How do I limit the tokens of HTTP requests?
func Example_tokensHTTP() {
	limiter, err := window.NewLocal(window.Config{Name: "tokens", Limits: []window.Limit{window.PerMinute(100_000)}})
	if err != nil {
		panic(err)
	}
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
		panic(err)
	}
	handler := limit.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, used, err := askModel(r.Context(), "six times seven?", 8_000)
		httplimit.SetCost(r.Context(), used)
		if err != nil {
			http.Error(w, "no answer", http.StatusBadGateway)
			return
		}
		_, _ = fmt.Fprintln(w, answer)
	}))

	r := httptest.NewRequest(http.MethodPost, "/completions", http.NoBody)
	r.Header.Set("X-Account", "17")
	handler.ServeHTTP(httptest.NewRecorder(), r)
	s, _ := limiter.Inspect(context.Background(), "header X-Account 17")
	fmt.Println(s.Limits[0].Used, "tokens used")
	// Output: 1250 tokens used
}
