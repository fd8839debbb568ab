// Command api is a complete service with limits, meant to be copied. It limits requests by address
// behind a load balancer, requests by the plan of an API key, the tokens of a language model, and
// attempts to log in. It shows callers how much they have left, exports metrics, and shuts down
// gracefully.
//
//	SECRET=$(openssl rand -hex 16) docker compose -f examples/api/compose.yaml up --build
//	LISTEN=:8080 METRICS_LISTEN=:9090 REDIS_URL=redis://127.0.0.1:6379 SECRET=0123456789abcdef go run ./examples/api
//
// Then, in another terminal:
//
//	curl -i localhost:8080/v1/hello -H 'X-Api-Key: free-key'
//	curl -i localhost:8080/v1/complete -H 'X-Api-Key: free-key' -d 'How many tokens is this?'
//	curl localhost:8080/v1/status -H 'X-Api-Key: free-key'
//	curl -i localhost:8080/login -d account=alice -d password=wrong
//	curl -s localhost:9090/metrics | grep slidegate
//
// Customers and users are in this file instead of in a database. The program needs the module
// otelgate, so until the first release, copy it with the replace lines from docs/compatibility.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"golang.org/x/crypto/bcrypt"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/login/loginhttp"
	"github.com/slidegate/slidegate/otelgate"
	"github.com/slidegate/slidegate/window"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, settingsFrom(os.Getenv))
	stop()
	if err != nil {
		log.Fatal("the service cannot run: ", err)
	}
}

// settings holds the settings from the environment.
type settings struct {
	listen, metrics string // addresses; metrics are for the operator only
	redis           string // a URL for window.Dial
	proxies         []string
	secret          []byte // at least 16 random bytes, the same in all processes; keys for the guard and the cookies are derived from it
}

func settingsFrom(getenv func(string) string) settings {
	return settings{
		listen: getenv("LISTEN"), metrics: getenv("METRICS_LISTEN"), redis: getenv("REDIS_URL"),
		proxies: strings.Fields(getenv("PROXIES")), secret: []byte(getenv("SECRET")),
	}
}

// run serves until ctx is done, and then finishes the requests in progress.
func run(ctx context.Context, s settings) error {
	conn := window.Dial(s.redis) // Redis can be down, now or later
	defer conn.Close()
	exporter, err := prometheus.New()
	if err != nil {
		return err
	}
	observe, err := otelgate.New(metric.NewMeterProvider(metric.WithReader(exporter)))
	if err != nil {
		return err
	}
	handler, err := newService(conn, observe, s)
	if s.listen == "" || s.metrics == "" {
		err = errors.Join(err, errors.New("LISTEN or METRICS_LISTEN is empty; set both, such as :8080 and :9090"))
	}
	if err != nil {
		return err
	}
	servers := []*http.Server{serverFor(s.listen, handler), serverFor(s.metrics, promhttp.Handler())}
	failed := make(chan error, len(servers))
	for _, server := range servers {
		go func() { failed <- server.ListenAndServe() }()
	}
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, server := range servers {
		err = errors.Join(err, server.Shutdown(within))
	}
	return err
}

func serverFor(addr string, h http.Handler) *http.Server {
	return &http.Server{
		Addr: addr, Handler: h,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
	}
}

// newService returns the handler of all routes. Except for health checks, which can come from the
// load balancer itself, the limit by address comes before any other work.
func newService(conn *window.Connection, observe observe, s settings) (http.Handler, error) {
	var clients httplimit.Clients // the address of the connection
	var err error
	if len(s.proxies) > 0 {
		clients, err = httplimit.ClientsBehind(s.proxies...)
	}
	if err != nil {
		return nil, err
	}
	addresses, err := newLimiter(conn, observe, "address", window.Limit{Max: 20, Per: time.Second}, window.PerMinute(300))
	if err != nil {
		return nil, err
	}
	form, err := newLogin(conn, observe, clients, s.secret)
	if err != nil {
		return nil, err
	}
	api, err := newAPI(conn, observe)
	if err != nil {
		return nil, err
	}
	byAddress, err := httplimit.New(httplimit.Config{Limiter: addresses, Key: clients.Key, Outage: httplimit.FailOpen})
	if err != nil {
		return nil, err
	}
	limited, all := http.NewServeMux(), http.NewServeMux()
	limited.Handle("/login", form)
	limited.Handle("/v1/", authenticated(api))
	all.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	all.Handle("/", byAddress.Wrap(limited))
	return all, nil
}

// timeout is how long a call may wait for Redis.
var timeout = 250 * time.Millisecond

type observe = func(context.Context, window.Observation)

// newLimiter returns a limiter. While Redis is down, it falls back to counts in the memory of each
// process.
func newLimiter(conn *window.Connection, observe observe, name string, limits ...window.Limit) (*window.Limiter, error) {
	cfg := window.Config{Name: name, Limits: limits, Timeout: timeout, Observe: observe}
	fallback, err := window.NewLocal(window.Config{Name: name, Limits: limits})
	if err != nil {
		return nil, err
	}
	cfg.Fallback = fallback
	return window.New(conn, cfg)
}

// plan is what a customer pays for.
type plan struct {
	name             string
	requests, tokens []window.Limit
}

var (
	free = plan{"free", []window.Limit{window.PerMinute(5)}, []window.Limit{window.PerHour(500)}}
	pro  = plan{"pro", []window.Limit{window.PerMinute(100)}, []window.Limit{window.PerHour(100_000)}}
)

// customer is a customer, identified by an API key.
type customer struct {
	id string
	plan
}

var customers = map[string]customer{"free-key": {"customer 17", free}, "pro-key": {"customer 42", pro}}

type customerKey struct{}

func customerOf(r *http.Request) customer { return r.Context().Value(customerKey{}).(customer) }

// authenticated lets only customers through. Limits by key come after it, so a client gains nothing
// by inventing keys.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := customers[r.Header.Get("X-Api-Key")]
		if !ok {
			http.Error(w, "send your API key as X-Api-Key", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), customerKey{}, c)))
	})
}

// newAPI returns the routes for customers, limited by their plans.
func newAPI(conn *window.Connection, observe observe) (http.Handler, error) {
	requests, err := newLimiter(conn, observe, "requests", free.requests...)
	if err != nil {
		return nil, err
	}
	tokens, err := window.New(conn, window.Config{Name: "tokens", Limits: free.tokens, Timeout: timeout, Observe: observe}) // see byTokens
	if err != nil {
		return nil, err
	}
	id := func(r *http.Request) string { return customerOf(r).id }
	requestsOf, err1 := byPlan(requests, func(p plan) []window.Limit { return p.requests })
	tokensOf, err2 := byPlan(tokens, func(p plan) []window.Limit { return p.tokens })
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	byRequests, err := httplimit.New(httplimit.Config{Choose: requestsOf, Key: id, Outage: httplimit.FailOpen})
	if err != nil {
		return nil, err
	}
	byTokens, err := httplimit.New(httplimit.Config{
		Choose: tokensOf, Key: id,
		Outage:    httplimit.FailClosed, // tokens cost money, so without Redis none are spent
		Cost:      mostTokens,
		CostAfter: func(u httplimit.Used) int64 { return u.Units },
	})
	if err != nil {
		return nil, err
	}
	status, err := httplimit.NewStatus(httplimit.StatusConfig{Quotas: []httplimit.Quota{
		{Name: "requests", Choose: requestsOf, Key: id}, {Name: "tokens", Choose: tokensOf, Key: id},
	}})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /v1/hello", byRequests.Wrap(http.HandlerFunc(hello)))
	mux.Handle("POST /v1/complete", byRequests.Wrap(byTokens.Wrap(http.HandlerFunc(complete))))
	mux.Handle("GET /v1/status", status)
	return mux, nil
}

// byPlan returns a Choose function that returns the limiter for the customer's plan. All limiters
// are created at startup, because an error from Choose would count as an outage, in which FailOpen
// allows requests.
func byPlan(l *window.Limiter, limits func(plan) []window.Limit) (func(*http.Request) (httplimit.Limiter, error), error) {
	plans := map[string]httplimit.Limiter{}
	for _, p := range []plan{free, pro} {
		of, err := l.With(limits(p)...)
		if err != nil {
			return nil, err
		}
		plans[p.name] = of.WithPlan(p.name)
	}
	return func(r *http.Request) (httplimit.Limiter, error) { return plans[customerOf(r).name], nil }, nil
}

// longestPrompt is the maximum length of a prompt in bytes.
const longestPrompt = 1 << 16

// mostTokens returns the maximum number of tokens that a prompt can cost. They are charged up
// front, so that concurrent prompts share the limit.
func mostTokens(r *http.Request) int64 {
	if r.ContentLength < 0 || r.ContentLength > longestPrompt {
		return longestPrompt / 2
	}
	return 1 + r.ContentLength/2
}

func hello(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintf(w, "hello, %s on the plan %s\n", customerOf(r).id, customerOf(r).name)
}

// complete stands in for a language model: each word is a token.
func complete(w http.ResponseWriter, r *http.Request) {
	prompt, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestPrompt))
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		http.Error(w, "the prompt is too long", http.StatusRequestEntityTooLarge)
		return
	} else if err != nil {
		http.Error(w, "the prompt cannot be read", http.StatusBadRequest)
		return
	}
	used := len(strings.Fields(string(prompt)))
	httplimit.SetCost(r.Context(), int64(used))
	_, _ = fmt.Fprintf(w, "your prompt has %d tokens\n", used)
}

// newLogin returns the login form. While Redis is down, it responds with 503.
func newLogin(conn *window.Connection, observe observe, clients httplimit.Clients, secret []byte) (http.Handler, error) {
	guard, err := login.New(conn, login.Config{Name: "login", Secret: secret, Observe: observe})
	if err != nil {
		return nil, err
	}
	devices, err := loginhttp.NewDevices(secret)
	if err != nil {
		return nil, err
	}
	return loginhttp.New(loginhttp.Config{
		Guard: guard, Devices: devices, Clients: clients, Check: checkPassword,
		Success: func(w http.ResponseWriter, _ *http.Request, account string) {
			_, _ = fmt.Fprintf(w, "welcome, %s\n", account) // start a session here
		},
	})
}

// alice is the only user. Her password is "correct horse".
var alice = []byte("$2a$10$BUqA2F/08GiGmG.Sy0tYJeh3gEUrLq89vbMhWfvOfoBq/U7upXUvm")

func checkPassword(_ context.Context, account, password string) (bool, error) {
	err := bcrypt.CompareHashAndPassword(alice, []byte(password)) // even for unknown accounts, so that the response time reveals nothing
	return err == nil && account == "alice", nil
}
