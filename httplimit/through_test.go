package httplimit_test

import (
	"bufio"
	"context"
	"crypto/sha1" //nolint:gosec // RFC 6455 requires it
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/httplimit"
)

// serveThrough runs check on servers that wrap handler in the middleware: plain, with CountOnly,
// with CostAfter, and with an InFlight inside the middleware. It uses HTTP/1.1, and also HTTP/2 if
// http2 is set.
func serveThrough(t *testing.T, handler http.HandlerFunc, http2 bool, check func(t *testing.T, s *httptest.Server)) {
	for name, cfg := range map[string]httplimit.Config{
		"plain":     {},
		"CountOnly": {CountOnly: func(int) bool { return false }},
		"CostAfter": {CostAfter: reported},
		"InFlight":  {},
	} {
		h := http.Handler(handler)
		if name == "InFlight" {
			h = inFlight(httplimit.InFlightConfig{Places: places(10)}).Wrap(h)
		}
		for _, two := range []bool{false, true}[:1+btoi(http2)] {
			t.Run(fmt.Sprintf("%s, HTTP/2 %t", name, two), func(t *testing.T) {
				cfg.Limiter, cfg.Key = inMemory(nil, "1000/1h"), address
				s := httptest.NewUnstartedServer(middleware(cfg).Wrap(h))
				s.EnableHTTP2 = two
				if two {
					s.StartTLS()
				} else {
					s.Start()
				}
				defer s.Close()
				check(t, s)
			})
		}
	}
}

// TestWriter checks that a handler's ResponseWriter has the same interfaces as without the
// middleware.
func TestWriter(t *testing.T) {
	able := func(w http.ResponseWriter) string {
		_, flusher := w.(http.Flusher)
		_, hijacker := w.(http.Hijacker)
		_, readerFrom := w.(io.ReaderFrom)
		_, stringWriter := w.(io.StringWriter)
		_, pusher := w.(http.Pusher)
		return fmt.Sprint(flusher, hijacker, readerFrom, stringWriter, pusher)
	}
	h := func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, able(w)) }
	serveThrough(t, h, true, func(t *testing.T, s *httptest.Server) {
		want := "true true true true false"
		if s.EnableHTTP2 {
			want = "true false false true true"
		}
		if got := send(t, s.Client(), request(t, http.MethodGet, s.URL, nil)); got.text != want || (got.protocol == 2) != s.EnableHTTP2 {
			t.Errorf("%v, not %s", got, want)
		}
	})
}

// TestStream checks that each part of a response arrives when it is flushed, before the handler
// continues.
func TestStream(t *testing.T) {
	next := make(chan struct{})
	h := func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			_, _ = fmt.Fprintln(w, "part", i)
			if i == 0 {
				w.(http.Flusher).Flush()
			} else if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			select {
			case <-next:
			case <-r.Context().Done():
			}
		}
	}
	serveThrough(t, h, true, func(t *testing.T, s *httptest.Server) {
		response, err := s.Client().Do(request(t, http.MethodGet, s.URL, nil).WithContext(aMinute(t)))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		for i := range 3 {
			if !lines.Scan() || lines.Text() != fmt.Sprint("part ", i) {
				t.Fatalf("%q, %v", lines.Text(), lines.Err())
			}
			next <- struct{}{}
		}
		if response.Header.Get("RateLimit") == "" {
			t.Error("no fields")
		}
	})
}

// TestBodies checks that a large body can be sent back while it is being received, with io.Copy,
// which uses the writer's ReadFrom if there is one.
func TestBodies(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := control.EnableFullDuplex(); err != nil && r.ProtoMajor == 1 {
			t.Error(err)
		}
		_ = control.Flush()
		if n, err := io.Copy(w, r.Body); n != 8<<20 || err != nil {
			t.Error(n, err)
		}
	}
	serveThrough(t, h, true, func(t *testing.T, s *httptest.Server) {
		in, out := io.Pipe()
		go func() {
			_, err := io.Copy(out, io.LimitReader(zeros{}, 8<<20))
			_ = out.CloseWithError(err)
		}()
		if n := len(send(t, s.Client(), request(t, http.MethodPost, s.URL, in)).text); n != 8<<20 {
			t.Errorf("%d bytes came back", n)
		}
	})
}

// TestWebsocket checks a WebSocket upgrade, and an echo over the connection, with each of the
// methods that libraries use to hijack it.
func TestWebsocket(t *testing.T) {
	for name, hijack := range map[string]func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
		"type assertion": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() },
		"controller": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return http.NewResponseController(w).Hijack()
		},
	} {
		h := func(w http.ResponseWriter, r *http.Request) {
			sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
			conn, buffer, err := hijack(w)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
			_, _ = io.Copy(conn, unmask(buffer))
		}
		t.Run(name, func(t *testing.T) { serveThrough(t, h, false, checkEcho) })
	}
}

// checkEcho upgrades a connection, sends a frame and waits for its echo.
func checkEcho(t *testing.T, s *httptest.Server) {
	t.Helper()
	r := request(t, http.MethodGet, s.URL, nil)
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
		r.Header.Set(name, value)
	}
	ctx := aMinute(t)
	response, err := s.Client().Do(r.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	defer context.AfterFunc(ctx, func() { _ = response.Body.Close() })() // after a 101, canceling the context no longer ends reads
	if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatal(response.StatusCode, response.Header)
	}
	wire := response.Body.(io.ReadWriter)
	_ = must(wire.Write([]byte("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"))) // "Hello", from RFC 6455, 5.7
	answer := make([]byte, 7)
	if _, err := io.ReadFull(wire, answer); err != nil || string(answer) != "\x81\x05Hello" {
		t.Errorf("%q, %v", answer, err)
	}
}

// unmask returns the client's first frame in the form in which a server sends it back.
func unmask(r io.Reader) io.Reader {
	frame := make([]byte, 11)
	_, _ = io.ReadFull(r, frame)
	for i := range 5 {
		frame[6+i] ^= frame[2+i%4]
	}
	return strings.NewReader("\x81\x05" + string(frame[6:]))
}
