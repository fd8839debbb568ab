// Command chi limits the requests to a chi router: by IP address, by route and by user.
//
//	go run ./examples/frameworks/chi
//	curl -i localhost:8080/orders/1
//	curl -i localhost:8080/account -H 'X-Test-User: alice'
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

var clients httplimit.Clients // the address of the connection; behind a load balancer, use httplimit.ClientsBehind

// limitBy returns a middleware that limits each key.
func limitBy(name string, key httplimit.Key, limit window.Limit) *httplimit.Middleware {
	limiter, err := window.NewLocal(window.Config{Name: name, Limits: []window.Limit{limit}}) // or window.New
	if err != nil {
		log.Fatal(err)
	}
	middleware, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: key, Outage: httplimit.FailOpen})
	if err != nil {
		log.Fatal(err)
	}
	return middleware
}

// chiRoute returns the Key that is the pattern of the route, for Use on a whole router.
func chiRoute(router chi.Routes) httplimit.Key {
	return httplimit.RouteBy(func(r *http.Request) string {
		current := chi.RouteContext(r.Context()) // has the path that StripSlashes and others set
		path := cmp.Or(current.RoutePath, r.URL.RawPath, r.URL.Path)
		return router.Find(chi.NewRouteContext(), r.Method, path)
	})
}

// userKey is the context key of the user's name.
type userKey struct{}

// authenticate puts the user's name into the context of a request. A real program would verify a
// session or a token.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Header.Get("X-Test-User")
		if name == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
	})
}

// user returns the Key of the user that authenticate has verified.
func user(r *http.Request) string {
	name, _ := r.Context().Value(userKey{}).(string)
	if name == "" {
		return "" // HTTP 400: authenticate has not run
	}
	return "user " + name
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "hello") }

func newHandler() http.Handler {
	router := chi.NewRouter()
	addresses := limitBy("addresses", clients.Key, window.PerMinute(20))
	routes := limitBy("routes", chiRoute(router).And(clients.Key), window.PerMinute(10))
	router.Use(addresses.Wrap, routes.Wrap)
	router.Get("/orders/{id}", hello)
	router.Get("/prices", hello)

	users := limitBy("users", httplimit.Key(httplimit.Route).And(user), window.PerMinute(3))
	router.Group(func(r chi.Router) {
		r.Use(authenticate, users.Wrap) // in this order
		r.Get("/account", hello)
	})
	return router
}

func main() {
	log.Fatal(http.ListenAndServe("localhost:8080", newHandler()))
}
