package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/slidegate/slidegate/window"
)

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

// How do I limit requests and tokens together?
func Example_requestsAndTokens() {
	requests, err := window.NewLocal(window.Config{Name: "requests", Limits: []window.Limit{window.PerMinute(3)}})
	if err != nil {
		panic(err)
	}
	tokens, err := window.NewLocal(window.Config{Name: "tokens", Limits: []window.Limit{window.PerMinute(10_000)}})
	if err != nil {
		panic(err)
	}
	q, ctx := quota{requests, tokens}, context.Background()
	for range 3 {
		_, err := q.complete(ctx, "customer 17", "six times seven?", 8_000)
		r, _ := requests.Inspect(ctx, "customer 17")
		s, _ := tokens.Inspect(ctx, "customer 17")
		fmt.Println(errors.Is(err, errTooManyTokens), r.Limits[0].Used, "requests,", s.Limits[0].Used, "tokens")
	}
	// Output:
	// false 1 requests, 1250 tokens
	// false 2 requests, 2500 tokens
	// true 2 requests, 2500 tokens
}

// levels limits each API key, each project and each organisation.
type levels struct{ keys, projects, organisations *window.Limiter }

// allow decides on one request. It is counted at all levels, or at none.
func (l levels) allow(ctx context.Context, organisation, project, key string) (window.JointDecision, error) {
	return window.AllowAll(ctx,
		window.Check{Limiter: l.keys, Event: key},
		window.Check{Limiter: l.projects, Event: organisation + "/" + project},
		window.Check{Limiter: l.organisations, Event: organisation})
}

// How do I limit keys, projects and organisations?
func Example_levels() {
	var l levels
	for name, of := range map[string]struct {
		limiter **window.Limiter
		perHour int64
	}{"keys": {&l.keys, 2}, "projects": {&l.projects, 3}, "organisations": {&l.organisations, 4}} {
		limiter, err := window.NewLocal(window.Config{Name: name, Limits: []window.Limit{window.PerHour(of.perHour)}})
		if err != nil {
			panic(err)
		}
		*of.limiter = limiter
	}
	for _, request := range [][2]string{{"web", "a"}, {"web", "a"}, {"web", "a"}, {"web", "b"}, {"web", "b"}, {"app", "c"}, {"app", "c"}} {
		j, err := l.allow(context.Background(), "acme", request[0], request[1])
		if err != nil {
			panic(err)
		}
		fmt.Println(request, j.Allowed)
	}
	// Output:
	// [web a] true
	// [web a] true
	// [web a] false
	// [web b] true
	// [web b] false
	// [app c] true
	// [app c] false
}

// How do I let users go ahead of background work?
func Example_priority() {
	users, err := window.NewLocal(window.Config{Name: "api", Limits: []window.Limit{window.PerMinute(5)}})
	if err != nil {
		panic(err)
	}
	background, err := users.With(window.PerMinute(3)) // the same minute, so the same count
	if err != nil {
		panic(err)
	}
	for _, of := range []*window.Limiter{background, background, background, background, users, users, users} {
		d, err := of.Allow(context.Background(), "customer 17")
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Allowed, d.Usage[0].Used, "used")
	}
	// Output:
	// true 1 used
	// true 2 used
	// true 3 used
	// false 3 used
	// true 4 used
	// true 5 used
	// false 5 used
}
