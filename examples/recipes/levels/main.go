// Command levels limits API keys, projects and organisations together:
// go run ./examples/recipes/levels
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/slidegate/slidegate/window"
)

// levels limits each API key, each project and each organisation.
type levels struct{ keys, projects, organisations *window.Limiter }

// allow decides on one request. It is counted at all levels, or at none.
func (l levels) allow(ctx context.Context, organisation, project, key string) (window.JointDecision, error) {
	return window.AllowAll(ctx,
		window.Check{Limiter: l.keys, Event: key},
		window.Check{Limiter: l.projects, Event: organisation + "/" + project},
		window.Check{Limiter: l.organisations, Event: organisation})
}

// newLimiter returns a limiter that allows some requests an hour.
func newLimiter(name string, perHour int64) *window.Limiter {
	limiter, err := window.NewLocal(window.Config{Name: name, Limits: []window.Limit{window.PerHour(perHour)}}) // or window.New
	if err != nil {
		log.Fatal(err)
	}
	return limiter
}

func main() {
	l := levels{newLimiter("keys", 2), newLimiter("projects", 3), newLimiter("organisations", 4)}
	for _, request := range [][2]string{{"web", "a"}, {"web", "a"}, {"web", "a"}, {"web", "b"}, {"web", "b"}, {"app", "c"}, {"app", "c"}} {
		j, err := l.allow(context.Background(), "acme", request[0], request[1])
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(request, j.Allowed)
	}
	// It prints:
	// [web a] true
	// [web a] true
	// [web a] false
	// [web b] true
	// [web b] false
	// [app c] true
	// [app c] false
}
