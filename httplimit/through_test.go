package httplimit_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/slidegate/slidegate/httplimit"
)

// serveThrough runs check on servers that wrap handler in the middleware: plain, with CountOnly,
// with CostAfter, and with an InFlight inside the middleware. It uses HTTP/1.1 and
// HTTP/2.
func serveThrough(t *testing.T, handler http.HandlerFunc, check func(t *testing.T, s *httptest.Server)) {
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
		for _, two := range []bool{false, true} {
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
	serveThrough(t, h, func(t *testing.T, s *httptest.Server) {
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
	serveThrough(t, h, func(t *testing.T, s *httptest.Server) {
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
	serveThrough(t, h, func(t *testing.T, s *httptest.Server) {
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
