package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// service is a proxy that serves until it is stopped.
type service struct {
	public, admin string
	stop          context.CancelFunc
	ended         chan error
}

// startService starts a proxy in front of h, using Serve, as the program does.
func startService(t *testing.T, h http.HandlerFunc) service {
	public, admin := must(net.Listen("tcp", "127.0.0.1:0")), must(net.Listen("tcp", "127.0.0.1:0"))
	p := newProxy(startServer(t, h), Config{})
	ctx, stop := context.WithCancel(t.Context())
	s := service{"http://" + public.Addr().String(), "http://" + admin.Addr().String(), stop, make(chan error, 1)}
	go func() { s.ended <- p.Serve(ctx, public, admin) }()
	return s
}

// health returns the status and the body of /healthz.
func (s service) health(t *testing.T) string {
	t.Helper()
	got := ask(t, s.admin, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	return got.Status + " " + got.Body
}

// TestDrain checks that Serve finishes a request in progress before it returns. Meanwhile it
// accepts no new requests, and /healthz reports draining.
func TestDrain(t *testing.T) {
	const ok, draining = "200 OK {\n  \"status\": \"ok\",\n  \"redis\": \"none\"\n}\n", "503 Service Unavailable {\n  \"status\": \"draining\",\n  \"redis\": \"none\"\n}\n"
	began, finish := make(chan struct{}), make(chan struct{})
	s := startService(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "begun, ")
		began <- struct{}{}
		<-finish
		_, _ = io.WriteString(w, "done")
	})
	got := make(chan reply, 1)
	go func() { got <- ask(t, s.public, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") }()
	<-began
	if h := s.health(t); h != ok {
		t.Error(h)
	}
	s.stop()
	asked := time.Now()
	for h := ok; h != draining; {
		if h = s.health(t); h != ok && h != draining || time.Since(asked) > testTimeout {
			t.Fatal(h)
		}
	}
	for { // the port is closed shortly afterwards
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.public, "http://"))
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	select {
	case err := <-s.ended:
		t.Fatalf("it ended, %v, with a request under way", err)
	default:
	}
	close(finish)
	if r := <-got; r.Status != "200 OK" || r.Body != "begun, done" {
		t.Errorf("%+v", r)
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(s.admin, "http://")); err == nil {
		t.Error("/healthz outlives the proxy")
	}
}

// TestGrace checks that a request that takes longer than the grace period is aborted, and that the
// log says so.
func TestGrace(t *testing.T) {
	to := must(url.Parse(startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))))
	i := startInstance(t, Config{To: to, Routes: []Route{limitedRoute("/", "1/1h")}})
	i.grace = time.Millisecond
	public, admin := must(net.Listen("tcp", "127.0.0.1:0")), must(net.Listen("tcp", "127.0.0.1:0"))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- i.Serve(ctx, public, admin) }()
	conn := connect(t, "http://"+public.Addr().String())
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	i.await(t, "the request", func() bool { return i.counted("/", allowed, byMemory) == 1 })
	i.deny("somebody", "5/1h", time.Hour)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the request goes on")
	}
	for _, line := range []string{"requests that are still under way", "requests were denied"} {
		if !strings.Contains(i.log.String(), line) {
			t.Errorf("%q is not logged\n%s", line, i.log)
		}
	}
}

// TestIdleConnections checks that connections that clients keep open do not delay the shutdown.
func TestIdleConnections(t *testing.T) {
	s := startService(t, func(http.ResponseWriter, *http.Request) {})
	conn := connect(t, s.public)
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	buffer := make([]byte, 1<<10)
	if _, err := conn.Read(buffer); err != nil {
		t.Fatal(err)
	}
	s.stop()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

// failingListener fails to accept the first connection.
type failingListener struct{ net.Listener }

var errFailing = errors.New("no more sockets")

func (l failingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		_ = conn.Close()
	}
	return nil, errFailing
}

// TestListenerFails checks that if either listener fails, Serve returns its error and closes the
// other.
func TestListenerFails(t *testing.T) {
	for _, first := range []bool{true, false} {
		bad, good := net.Listener(failingListener{must(net.Listen("tcp", "127.0.0.1:0"))}), must(net.Listen("tcp", "127.0.0.1:0"))
		public, admin := good, bad
		if first {
			public, admin = bad, good
		}
		ended := make(chan error, 1)
		go func() { ended <- newProxy("http://127.0.0.1:1", Config{}).Serve(t.Context(), public, admin) }()
		_ = must(net.Dial("tcp", bad.Addr().String())).Close()
		if err := <-ended; !errors.Is(err, errFailing) {
			t.Error(err)
		}
		if _, err := net.Dial("tcp", good.Addr().String()); err == nil {
			t.Error("the other listener is still open")
		}
	}
}

// TestSlowHeaders checks that a client has ten seconds to send the header of a request, and that an
// idle connection is closed after two minutes. There is no timeout for a body.
func TestSlowHeaders(t *testing.T) {
	p := newProxy("http://127.0.0.1:1", Config{})
	s := p.server(p)
	got := []time.Duration{s.ReadHeaderTimeout, s.IdleTimeout, s.ReadTimeout, s.WriteTimeout}
	if diff := cmp.Diff([]time.Duration{10 * time.Second, 2 * time.Minute, 0, 0}, got); diff != "" {
		t.Error(diff)
	}
}
