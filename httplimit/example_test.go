package httplimit_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// hello is a handler.
func hello(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "hello") }

// show sends a request from an address and prints the status. Headers are names and values,
// alternately.
func show(h http.Handler, method, path, address string, fields ...string) {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = address + ":50000"
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(method, path, w.Code)
}

// How do I rate limit all requests to a server by IP address, with the counts in Redis?
func Example() {
	conn := window.Dial("redis://127.0.0.1:6379")
	limiter, err := window.New(conn, window.Config{
		Name:   "api",
		Limits: []window.Limit{window.Every(5 * time.Second), window.PerHour(5)},
	})
	if err != nil {
		panic(err)
	}
	var clients httplimit.Clients // the address of the connection
	limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: clients.Key, Outage: httplimit.FailOpen})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", hello)
	handler := limit.Wrap(mux) // for http.ListenAndServe

	show(handler, "GET", "/", "198.51.100.7")
	show(handler, "GET", "/", "198.51.100.7")
	show(handler, "GET", "/", "203.0.113.1")
	// It prints:
	// GET / 200
	// GET / 429
	// GET / 200
}

// How do I give each route its own budget for each client? Wrap the handlers within the mux, where
// the pattern is known.
func ExampleRoute() {
	limiter, _ := window.NewLocal(window.Config{Name: "routes", Limits: []window.Limit{window.PerHour(1)}})
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter, Key: httplimit.Key(httplimit.Route).And(httplimit.Clients{}.Key), Outage: httplimit.FailOpen,
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", limit.Wrap(http.HandlerFunc(hello)))
	mux.Handle("GET /prices", limit.Wrap(http.HandlerFunc(hello)))
	mux.HandleFunc("GET /health", hello) // without a limit

	show(mux, "GET", "/orders/1", "198.51.100.7")
	show(mux, "GET", "/orders/2", "198.51.100.7")
	show(mux, "GET", "/prices", "198.51.100.7")
	show(mux, "GET", "/health", "198.51.100.7")
	// Output:
	// GET /orders/1 200
	// GET /orders/2 429
	// GET /prices 200
	// GET /health 200
}

// How do I use it with chi, or any router that takes func(http.Handler) http.Handler?
func ExampleMiddleware_Wrap() {
	limiter, _ := window.NewLocal(window.Config{Name: "api", Limits: []window.Limit{window.PerHour(1)}})
	limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: httplimit.Clients{}.Key, Outage: httplimit.FailOpen})
	if err != nil {
		panic(err)
	}
	handler := http.Handler(http.HandlerFunc(hello))
	for _, use := range []func(http.Handler) http.Handler{http.NewCrossOriginProtection().Handler, limit.Wrap} { // chi: r.Use(limit.Wrap)
		handler = use(handler)
	}

	show(handler, "GET", "/orders", "198.51.100.7")
	show(handler, "GET", "/orders", "198.51.100.7")
	show(handler, "GET", "/orders", "203.0.113.1")
	// Output:
	// GET /orders 200
	// GET /orders 429
	// GET /orders 200
}

// How do I rate limit clients behind my load balancers in 10.0.0.0/8, which add to X-Forwarded-For?
func ExampleClientsBehind() {
	clients, err := httplimit.ClientsBehind("10.0.0.0/8")
	if err != nil {
		panic(err)
	}
	limiter, _ := window.NewLocal(window.Config{Name: "api", Limits: []window.Limit{window.PerHour(1)}})
	limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: clients.Key, Outage: httplimit.FailOpen})
	if err != nil {
		panic(err)
	}
	handler := limit.Wrap(http.HandlerFunc(hello))

	show(handler, "GET", "/a", "10.0.0.1", "X-Forwarded-For", "198.51.100.7")
	show(handler, "GET", "/b", "10.0.0.2", "X-Forwarded-For", "203.0.113.1, 198.51.100.7") // the first is forged
	show(handler, "GET", "/c", "10.0.0.1", "X-Forwarded-For", "203.0.113.1")
	// Output:
	// GET /a 200
	// GET /b 429
	// GET /c 200
}

// How do I rate limit clients behind a CDN that writes their address into a header, such as
// Cloudflare?
func ExampleClientsIn() {
	clients, err := httplimit.ClientsIn("CF-Connecting-IP", "192.0.2.0/24") // the networks that the CDN publishes
	if err != nil {
		panic(err)
	}
	limiter, _ := window.NewLocal(window.Config{Name: "api", Limits: []window.Limit{window.PerHour(1)}})
	limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: clients.Key, Outage: httplimit.FailOpen})
	if err != nil {
		panic(err)
	}
	handler := limit.Wrap(http.HandlerFunc(hello))

	show(handler, "GET", "/a", "192.0.2.1", "CF-Connecting-IP", "2001:db8:1:2::7")
	show(handler, "GET", "/b", "192.0.2.2", "CF-Connecting-IP", "2001:db8:1:2::8") // the same /64
	show(handler, "GET", "/c", "198.51.100.7", "CF-Connecting-IP", "203.0.113.1")  // past the CDN, forged
	show(handler, "GET", "/d", "198.51.100.7", "CF-Connecting-IP", "203.0.113.2")
	// Output:
	// GET /a 200
	// GET /b 429
	// GET /c 200
	// GET /d 429
}

// How do I find the client's address behind a Google Cloud load balancer, which adds two entries to
// X-Forwarded-For?
func ExampleClientsByHops() {
	clients, err := httplimit.ClientsByHops(2)
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/login", http.NoBody)
	r.Header.Set("X-Forwarded-For", "203.0.113.1,198.51.100.7,192.0.2.10") // the first is forged
	fmt.Println(clients.Addr(r))                                           // for login.Guard
	fmt.Println(clients.Key(r))                                            // for httplimit.Config
	// Output:
	// 198.51.100.7 <nil>
	// 198.51.100.7
}

// How do I try limits on live traffic without rejecting anyone?
func ExampleConfig_shadow() {
	denied := 0
	limiter, _ := window.NewLocal(window.Config{
		Name: "api", Limits: []window.Limit{window.PerHour(1)},
		Observe: func(_ context.Context, o window.Observation) {
			if o.Kind == window.KindDenied {
				denied++ // a metric
			}
		},
	})
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter, Key: httplimit.Clients{}.Key, Outage: httplimit.FailOpen, Shadow: true,
		Log: slog.New(slog.DiscardHandler), // only for this example
	})
	if err != nil {
		panic(err)
	}
	handler := limit.Wrap(http.HandlerFunc(hello))

	show(handler, "GET", "/a", "198.51.100.7")
	show(handler, "GET", "/b", "198.51.100.7")
	fmt.Println("would be denied:", denied)
	// Output:
	// GET /a 200
	// GET /b 200
	// would be denied: 1
}

// How do I send an account at most 10 SMS a day? By default, each request counts one unit.
func ExampleHeader() {
	limiter, _ := window.NewLocal(window.Config{Name: "sms", Limits: []window.Limit{window.PerDay(10)}})
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter, Outage: httplimit.FailClosed, // an SMS costs money
		Key: httplimit.Header("X-Account"), // the gateway sets it after it has checked the credentials
	})
	if err != nil {
		panic(err)
	}
	handler := limit.Wrap(http.HandlerFunc(hello))

	for range 10 {
		handler.ServeHTTP(httptest.NewRecorder(), &http.Request{Header: http.Header{"X-Account": {"17"}}})
	}
	show(handler, "POST", "/sms", "10.0.0.1", "X-Account", "17")
	show(handler, "POST", "/sms", "10.0.0.1", "X-Account", "18")
	show(handler, "POST", "/sms", "10.0.0.1")
	// Output:
	// POST /sms 429
	// POST /sms 200
	// POST /sms 400
}

// How do I let an account transfer at most $2,000 a day? A request costs its cents. The amount must
// be known before the handler runs.
func ExampleConfig_cost() {
	limiter, _ := window.NewLocal(window.Config{Name: "transfers", Limits: []window.Limit{window.PerDay(2000_00)}})
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter, Outage: httplimit.FailClosed, Key: httplimit.Header("X-Account"),
		Cost: func(r *http.Request) int64 {
			cents, err := strconv.ParseInt(r.PathValue("cents"), 10, 64)
			if err != nil || cents < 1 {
				return 1 // the handler rejects it; no amount is free
			}
			return cents
		},
		CountOnly: func(status int) bool { return status < 400 }, // failed transfers are given back
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /transfers/{cents}", limit.Wrap(http.HandlerFunc(hello)))

	show(mux, "POST", "/transfers/150000", "10.0.0.1", "X-Account", "17")
	show(mux, "POST", "/transfers/60000", "10.0.0.1", "X-Account", "17")
	show(mux, "POST", "/transfers/50000", "10.0.0.1", "X-Account", "17")
	show(mux, "POST", "/transfers/200001", "10.0.0.1", "X-Account", "17") // never
	// Output:
	// POST /transfers/150000 200
	// POST /transfers/60000 429
	// POST /transfers/50000 200
	// POST /transfers/200001 413
}

// How do I accept at most 10 pushes a minute for a device, with at least 3 s between two?
func ExampleNew() {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	limiter, _ := window.NewLocal(window.Config{
		Name: "push", Limits: []window.Limit{window.Every(3 * time.Second), window.PerMinute(10)},
		Now: func() time.Time { return now }, // only for this example
	})
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter, Outage: httplimit.FailOpen,
		Key: func(r *http.Request) string { return r.PathValue("device") },
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /push/{device}", limit.Wrap(http.HandlerFunc(hello)))

	for range 3 {
		show(mux, "POST", "/push/4", "10.0.0.1")
		now = now.Add(1500 * time.Millisecond)
	}
	// Output:
	// POST /push/4 200
	// POST /push/4 429
	// POST /push/4 200
}

// How do I count only failed logins? For forms, package login has more: accounts, known devices,
// and the defaults of the standards.
func ExampleConfig_countOnly() {
	limiter, _ := window.NewLocal(window.Config{Name: "failures", Limits: []window.Limit{window.PerMinute(2), window.PerHour(20)}})
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter, Key: httplimit.Clients{}.Key, Outage: httplimit.FailClosed,
		CountOnly: func(status int) bool { return status == http.StatusUnauthorized || status == http.StatusForbidden },
	})
	if err != nil {
		panic(err)
	}
	handler := limit.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "correct horse" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))

	const right, wrong = "Basic YWxpY2U6Y29ycmVjdCBob3JzZQ==", "Basic YWxpY2U6bGV0bWVpbg=="
	for _, credentials := range []string{right, right, right, wrong, wrong, right} {
		show(handler, "GET", "/", "198.51.100.7", "Authorization", credentials)
	}
	// Output:
	// GET / 200
	// GET / 200
	// GET / 200
	// GET / 401
	// GET / 401
	// GET / 429
}

// How do accounts get limits by their plan? With and WithPlan create the limiter of a plan, and
// Choose returns it. All plans count in the same keys, so an account that changes its plan keeps
// its counts.
func ExampleConfig_choose() {
	free, err := window.NewLocal(window.Config{Name: "plans", Limits: []window.Limit{window.PerHour(2)}}) // or window.New
	if err != nil {
		panic(err)
	}
	paid, err := free.With(window.PerHour(4))
	if err != nil {
		panic(err)
	}
	plans := map[string]httplimit.Limiter{
		"free": free.WithPlan("free"), "paid": paid.WithPlan("paid"),
		"staff": httplimit.Unlimited, "closed": httplimit.Blocked,
	}
	limit, err := httplimit.New(httplimit.Config{
		Choose: func(r *http.Request) (httplimit.Limiter, error) {
			return cmp.Or(plans[r.Header.Get("X-Plan")], plans["free"]), nil // your authentication sets this header
		},
		Key:    httplimit.Header("X-Account"), // and this one, and drops what clients send
		Outage: httplimit.FailOpen,
	})
	if err != nil {
		panic(err)
	}
	handler := limit.Wrap(http.HandlerFunc(hello))

	for _, plan := range []string{"free", "free", "free", "paid", "paid", "paid", "staff", "closed"} {
		show(handler, "GET", "/"+plan, "10.0.0.1", "X-Account", "17", "X-Plan", plan)
	}
	// Output:
	// GET /free 200
	// GET /free 200
	// GET /free 429
	// GET /paid 200
	// GET /paid 200
	// GET /paid 429
	// GET /staff 200
	// GET /closed 403
}

// How do I limit an API key and its organisation together, so that a request counts in both or in
// neither?
func ExampleConfig_checks() {
	keys, _ := window.NewLocal(window.Config{Name: "keys", Limits: []window.Limit{window.PerHour(2)}}) // or window.New
	organisations, _ := window.NewLocal(window.Config{Name: "organisations", Limits: []window.Limit{window.PerHour(3)}})
	limit, err := httplimit.New(httplimit.Config{
		Checks: func(r *http.Request) []window.Check {
			return []window.Check{ // your authentication sets both headers
				{Limiter: keys, Event: r.Header.Get("X-Key")},
				{Limiter: organisations, Event: r.Header.Get("X-Organisation")},
			}
		},
		Outage: httplimit.FailOpen,
	})
	if err != nil {
		panic(err)
	}
	handler := limit.Wrap(http.HandlerFunc(hello))

	for _, key := range []string{"a", "a", "a", "b", "b"} {
		show(handler, "GET", "/"+key, "10.0.0.1", "X-Key", key, "X-Organisation", "acme")
	}
	// Output:
	// GET /a 200
	// GET /a 200
	// GET /a 429
	// GET /b 200
	// GET /b 429
}

// How do callers read how much they have left, without using any of it?
func ExampleNewStatus() {
	limiter, err := window.NewLocal(window.Config{ // or window.New
		Name: "api", Limits: []window.Limit{window.PerHour(5)},
		Now: func() time.Time { return time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC) }, // only for this example
	})
	if err != nil {
		panic(err)
	}
	account := httplimit.Header("X-Account") // your authentication sets it
	limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Key: account, Outage: httplimit.FailOpen})
	if err != nil {
		panic(err)
	}
	status, err := httplimit.NewStatus(httplimit.StatusConfig{
		Quotas: []httplimit.Quota{{Name: "requests", Limiter: limiter, Key: account}},
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /orders", limit.Wrap(http.HandlerFunc(hello)))
	mux.Handle("GET /limits", status)

	for _, path := range []string{"/orders", "/limits", "/limits"} {
		r, w := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
		r.Header.Set("X-Account", "17")
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 200 hello
	// 200 {"quotas":[{"name":"requests","allowed":true,"limits":[{"limit":"5/1h","max":5,"window":3600,"used":1,"remaining":4,"retry_after":0,"reset_after":3600}]}]}
	// 200 {"quotas":[{"name":"requests","allowed":true,"limits":[{"limit":"5/1h","max":5,"window":3600,"used":1,"remaining":4,"retry_after":0,"reset_after":3600}]}]}
}
