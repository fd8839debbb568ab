package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// TestMain runs the tests, and stops the servers that they have started.
func TestMain(m *testing.M) { redistest.Main(m) }

// TestService runs the whole service. It covers each route, an outage of Redis, and the shutdown.
func TestService(t *testing.T) {
	redis, api, operator := redistest.Start(t), freeAddress(t), freeAddress(t)
	timeout = time.Minute // so that a busy machine does not cause an outage
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, settings{listen: api, metrics: operator, redis: "redis://" + redis.Addr(), secret: bytes.Repeat([]byte{7}, 16)})
	}()
	awaitAnswer(t, "http://"+operator+"/metrics", ended)
	c := client{t, "http://" + api}

	c.wants("GET", "/v1/hello", "", "", 401, "X-Api-Key")
	for range 5 {
		c.wants("GET", "/v1/hello", "free-key", "", 200, "hello, customer 17 on the plan free")
	}
	c.wants("GET", "/v1/hello", "free-key", "", 429, "5/1m")
	c.wants("GET", "/v1/hello", "pro-key", "", 200, "plan pro")
	c.wants("POST", "/v1/complete", "free-key", "three tokens, please", 429, "5/1m")
	c.wants("POST", "/v1/complete", "pro-key", "three tokens, please", 200, "3 tokens")
	c.wants("GET", "/v1/status", "pro-key", "", 200, `"used":3,"remaining":99997`)
	c.wants("GET", "/healthz", "", "", 200, "")
	c.wants("POST", "/login", "", url.Values{"account": {"alice"}, "password": {"wrong"}}.Encode(), 403, "Account or password is wrong")
	c.wants("POST", "/login", "", url.Values{"account": {"alice"}, "password": {"correct horse"}}.Encode(), 200, "welcome, alice")

	redis.Kill(t)
	c.wants("GET", "/v1/hello", "free-key", "", 200, "hello") // the fallback decides
	c.wants("POST", "/v1/complete", "pro-key", "two tokens", 503, "")
	c.wants("POST", "/login", "", url.Values{"account": {"alice"}, "password": {"correct horse"}}.Encode(), 503, "")
	redis.Restart(t)
	redistest.Eventually(t, "the service reconnects to Redis", func() bool { return c.status("GET", "/v1/status", "free-key", "") == 200 })
	client{t, "http://" + operator}.wants("GET", "/metrics", "", "", 200, `slidegate_limiter_name="requests"`)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// freeAddress returns an address that is not in use.
func freeAddress(t *testing.T) string {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// awaitAnswer waits until a server responds. It fails the test if the service has ended.
func awaitAnswer(t *testing.T, address string, ended <-chan error) {
	for {
		if r, err := http.Get(address); err == nil {
			text(t, r)
			return
		}
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// client calls the service.
type client struct {
	*testing.T
	base string
}

func (c client) status(method, path, key, body string) int {
	r := c.do(method, path, key, body)
	text(c.T, r)
	return r.StatusCode
}

// wants sends a request to a route, and checks the status and the body of the response.
func (c client) wants(method, path, key, body string, status int, has string) {
	c.Helper()
	r := c.do(method, path, key, body)
	if got := text(c.T, r); r.StatusCode != status || !strings.Contains(got, has) {
		c.Errorf("%s %s: %d, want %d with %q: %s", method, path, r.StatusCode, status, has, got)
	}
}

func (c client) do(method, path, key, body string) *http.Response {
	r := must(http.NewRequestWithContext(c.Context(), method, c.base+path, strings.NewReader(body)))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	return must(http.DefaultClient.Do(r))
}

func text(t *testing.T, r *http.Response) string {
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return string(body)
}

func must[T any](v T, err error) T { return redistest.Must(v, err) }
