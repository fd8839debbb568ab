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

// A service is a proxy that serves until it is stopped.
type service struct {
	public, admin string
	stop          context.CancelFunc
	ended         chan error
}

// serve has a proxy to a handler serve, as the program does.
func serve(t *testing.T, h http.HandlerFunc) service {
	public, admin := must(net.Listen("tcp", "127.0.0.1:0")), must(net.Listen("tcp", "127.0.0.1:0"))
	p := made(serving(t, h), Config{})
	ctx, stop := context.WithCancel(t.Context())
	s := service{"http://" + public.Addr().String(), "http://" + admin.Addr().String(), stop, make(chan error, 1)}
	go func() { s.ended <- p.Serve(ctx, public, admin) }()
	return s
}

// health is the answer of /healthz.
func (s service) health(t *testing.T) string {
	t.Helper()
	got := ask(t, s.admin, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	return got.Status + " " + got.Body
}

// TestDrain: at the end, a request under way is finished while no new one is taken and /healthz says so, and then Serve returns.
func TestDrain(t *testing.T) {
	const ok, draining = "200 OK {\n  \"status\": \"ok\",\n  \"redis\": \"none\"\n}\n", "503 Service Unavailable {\n  \"status\": \"draining\",\n  \"redis\": \"none\"\n}\n"
	began, finish := make(chan struct{}), make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
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
		if h = s.health(t); h != ok && h != draining || time.Since(asked) > long {
			t.Fatal(h)
		}
	}
	for { // the port closes a moment after that
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

// TestGrace: a request that goes on for longer than the grace is cut off, which the log says.
func TestGrace(t *testing.T) {
	to := must(url.Parse(serving(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))))
	i := listen(t, Config{To: to, Routes: []Route{limited("/", "1/1h")}})
	i.grace = time.Millisecond
	public, admin := must(net.Listen("tcp", "127.0.0.1:0")), must(net.Listen("tcp", "127.0.0.1:0"))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- i.Serve(ctx, public, admin) }()
	conn := connect(t, "http://"+public.Addr().String())
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	i.await(t, "the request", func() bool { return i.counted("/", admitted, byMemory) == 1 })
	i.deny("somebody")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the request goes on")
	}
	for _, line := range []string{"under way are cut off", "requests were denied"} {
		if !strings.Contains(i.log.String(), line) {
			t.Errorf("%q is not told\n%s", line, i.log)
		}
	}
}

func (i *instance) deny(event string) { i.over.deny(event, time.Now()) }

// TestIdleConnections: those that clients keep open do not hold up the end.
func TestIdleConnections(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
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

// failing is a listener that fails once somebody connects.
type failing struct{ net.Listener }

var errFailing = errors.New("no more sockets")

func (l failing) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		_ = conn.Close()
	}
	return nil, errFailing
}

// TestListenerFails: Serve returns why, whichever it is, and closes the other.
func TestListenerFails(t *testing.T) {
	for _, first := range []bool{true, false} {
		bad, good := net.Listener(failing{must(net.Listen("tcp", "127.0.0.1:0"))}), must(net.Listen("tcp", "127.0.0.1:0"))
		public, admin := good, bad
		if first {
			public, admin = bad, good
		}
		ended := make(chan error, 1)
		go func() { ended <- made("http://127.0.0.1:1", Config{}).Serve(t.Context(), public, admin) }()
		_ = must(net.Dial("tcp", bad.Addr().String())).Close()
		if err := <-ended; !errors.Is(err, errFailing) {
			t.Error(err)
		}
		if _, err := net.Dial("tcp", good.Addr().String()); err == nil {
			t.Error("the other listener is still open")
		}
	}
}

// TestSlowHeaders: a client has some seconds for the fields of a request, and a connection without requests is not kept for ever; but a body may take its time.
func TestSlowHeaders(t *testing.T) {
	p := made("http://127.0.0.1:1", Config{})
	s := p.server(p)
	got := []time.Duration{s.ReadHeaderTimeout, s.IdleTimeout, s.ReadTimeout, s.WriteTimeout}
	if diff := cmp.Diff([]time.Duration{10 * time.Second, 2 * time.Minute, 0, 0}, got); diff != "" {
		t.Error(diff)
	}
}
