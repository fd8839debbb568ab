package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// startBehindProxy serves h behind a proxy, and returns the URL of the proxy.
func startBehindProxy(t *testing.T, cfg Config, h http.HandlerFunc) (at string) {
	return startServer(t, newProxy(startServer(t, h), cfg))
}

// receivedRequest represents a request as the server received it.
type receivedRequest struct {
	Method, Target, Host string
	Length               int64
	Chunked              []string
	Header               http.Header
	Body                 string
	Trailer              http.Header
}

// recordRequests returns a handler that sends each request to a channel before h answers it.
func recordRequests(saw chan<- receivedRequest, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			text = []byte(err.Error())
		}
		saw <- receivedRequest{r.Method, r.RequestURI, r.Host, r.ContentLength, r.TransferEncoding, r.Header, string(text), r.Trailer}
		h(w, r)
	}
}

// respondAs responds in the way that the request's Answer header says.
func respondAs(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["X-Twice"] = []string{"one", "two"}
	switch r.Header.Get("Answer") {
	case "gzip":
		h.Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "\x1f\x8b no gzip at all")
	case "early":
		h.Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		h.Set("Link", "</script.js>")
		w.WriteHeader(http.StatusEarlyHints)
		h.Del("Link")
	case "trailers":
		h.Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "text")
		h.Set("X-Sum", "42")
	case "large":
		_, _ = io.WriteString(w, strings.Repeat("0123456789", 1<<20))
	case "none":
		w.WriteHeader(http.StatusNoContent)
	case "same":
		h.Set("Etag", `"x"`)
		w.WriteHeader(http.StatusNotModified)
	case "length":
		h.Set("Content-Length", "1234567")
	case "broken":
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "<html>")
	case "elsewhere":
		http.Redirect(w, r, "//other.example/%2F", http.StatusFound)
	case "cookies":
		h["Set-Cookie"] = []string{"a=b; Path=/", "c=\"d e\""}
		w.WriteHeader(299)
	}
}

// TestNothingChanges checks that the server and the client receive the same as without the proxy,
// except for the header fields that the proxy adds.
func TestNothingChanges(t *testing.T) {
	const end = "Connection: close\r\n\r\n"
	saw := make(chan receivedRequest, 1)
	server := startServer(t, recordRequests(saw, respondAs))
	front := startServer(t, newProxy(server, Config{}))
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n" + end,
		"GET /a%2Fb//c/./..//d%20%41/?x=1;y=2&bad=%zz&%41=&&q HTTP/1.1\r\nHost: a\r\n" + end,
		"GET /? HTTP/1.1\r\nHost: a\r\n" + end,
		"GET / HTTP/1.1\r\nHost: API.example.com:8080\r\n" + end,
		"GET / HTTP/1.1\r\nHost: a\r\nX-Twice: 1\r\nX-Other: o\r\nx-twice: 2\r\nX-Twice:\r\nCookie: a=b\r\nCookie: c=d\r\n" + end,
		"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic YTpi\r\nUser-Agent: me\r\nAccept-Encoding: br\r\nX-Latin: \xe4\r\n" + end,
		"GET / HTTP/1.1\r\nHost: a\r\nTe: trailers\r\nAnswer: trailers\r\n" + end,
		"brew /pot HTTP/1.1\r\nHost: a\r\n" + end,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n" + end + "abc",
		"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n" + end + strings.Repeat("0123456789", 1e6),
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n" + end + "3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 42\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n" + end + "abc",
		"HEAD / HTTP/1.1\r\nHost: a\r\nAnswer: length\r\n" + end,
		"GET / HTTP/1.1\r\nHost: a\r\nAnswer: gzip\r\n" + end,
		"GET / HTTP/1.1\r\nHost: a\r\nAnswer: gzip\r\nAccept-Encoding: gzip\r\n" + end,
		"GET / HTTP/1.1\r\nHost: a\r\nAnswer: early\r\n" + end,
		"GET / HTTP/1.1\r\nHost: a\r\nAnswer: large\r\n" + end,
		"GET / HTTP/1.1\r\nHost: a\r\nAnswer: none\r\n" + end,
		"GET / HTTP/1.1\r\nHost: a\r\nAnswer: same\r\nIf-None-Match: \"x\"\r\n" + end,
		"GET / HTTP/1.1\r\nHost: a\r\nAnswer: broken\r\n" + end,
		"GET / HTTP/1.1\r\nHost: a\r\nAnswer: elsewhere\r\n" + end,
		"GET / HTTP/1.1\r\nHost: a\r\nAnswer: cookies\r\n" + end,
		"GET / HTTP/1.0\r\nHost: a\r\n\r\n",
	} {
		want, wantSeen := ask(t, server, request), <-saw
		got, gotSeen := ask(t, front, request), <-saw
		if len(got.Header["Ratelimit-Policy"]) != 1 || len(got.Header["Ratelimit"]) != 1 {
			t.Errorf("%.200s: the fields are %v", request, got.Header)
		}
		for _, name := range []string{"Ratelimit-Policy", "Ratelimit", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
			delete(got.Header, name)
			delete(gotSeen.Header, name)
		}
		delete(wantSeen.Header, "Connection")
		got.Header["Date"] = want.Header["Date"]
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.200s: the client gets (-without the proxy +with it)\n%s", request, diff)
		}
		if diff := cmp.Diff(wantSeen, gotSeen); diff != "" {
			t.Errorf("%.200s: the server gets (-without the proxy +with it)\n%s", request, diff)
		}
	}
}

// TestPathOfTheServer checks that the path of the server's URL is prepended to the paths of
// requests, and that their spelling is preserved.
func TestPathOfTheServer(t *testing.T) {
	saw := make(chan receivedRequest, 1)
	server := startServer(t, recordRequests(saw, respondAs))
	for _, tt := range [][3]string{
		{"", "/x", "/x"},
		{"/", "/x", "/x"},
		{"/", "//x%2F", "//x%2F"},
		{"/app", "/", "/app/"},
		{"/app/", "/x", "/app/x"},
		{"/app", "//x%2Fy//z?q", "/app//x%2Fy//z?q"},
		{"/a%2Fb", "/x", "/a%2Fb/x"},
		{"", "http://a/x%2F?q", "/x%2F?q"},
		{"", "http://a", "/"},
	} {
		_ = ask(t, startServer(t, newProxy(server+tt[0], Config{})), "GET "+tt[1]+" HTTP/1.1\r\nHost: a\r\n\r\n")
		if got := (<-saw).Target; got != tt[2] {
			t.Errorf("%q with %q: %q, not %q", tt[0], tt[1], got, tt[2])
		}
	}
}

// TestForged checks that a client's forwarding fields never reach the server, in any spelling. If
// the client is a trusted proxy, the fields are kept and extended.
func TestForged(t *testing.T) {
	const request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Forwarded-For, X-Sum\r\nX-Forwarded-For: 192.0.2.1\r\nx-forwarded-for: 192.0.2.2\r\nX_Forwarded-For: 192.0.2.3\r\nX-Forwarded-Host: b\r\nX-Forwarded_Proto: gopher\r\n" +
		"X-Forwarded-Proto: https\r\nForwarded: for=192.0.2.4\r\nConnection: close, X-Forwarded-For, X-Forwarded-Proto\r\n\r\n" +
		"0\r\nX-Forwarded-For: 192.0.2.5\r\nX-Sum: 42\r\nX_Forwarded_For: 192.0.2.6\r\n\r\n"
	ours := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32")}
	for _, tt := range []struct {
		behind []netip.Prefix
		want   http.Header
	}{
		{nil, http.Header{"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Host": {"a"}, "X-Forwarded-Proto": {"http"}}},
		{ours[:1], http.Header{"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Host": {"a"}, "X-Forwarded-Proto": {"http"}}},
		{ours, http.Header{"X-Forwarded-For": {"192.0.2.1, 192.0.2.2, 127.0.0.1"}, "X-Forwarded-Host": {"b"}, "X-Forwarded-Proto": {"https"}}},
	} {
		saw := make(chan receivedRequest, 1)
		_ = ask(t, startBehindProxy(t, Config{Behind: tt.behind}, recordRequests(saw, respondAs)), request)
		got := <-saw
		if diff := cmp.Diff(tt.want, got.Header); diff != "" {
			t.Errorf("behind %v (-want +got):\n%s", tt.behind, diff)
		}
		if diff := cmp.Diff(http.Header{"X-Sum": {"42"}}, got.Trailer); diff != "" {
			t.Errorf("behind %v, the trailers (-want +got):\n%s", tt.behind, diff)
		}
	}
}

// TestStream checks that each part of a response arrives before the server continues, both for
// server-sent events and for a response of unknown length.
func TestStream(t *testing.T) {
	for _, kind := range []string{"text/event-stream", "application/x-ndjson"} {
		next := make(chan struct{})
		front := startBehindProxy(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			for i := range 3 {
				_, _ = fmt.Fprintln(w, "part", i)
				w.(http.Flusher).Flush()
				select {
				case <-next:
				case <-r.Context().Done():
				}
			}
		})
		response, err := http.Get(front)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(response.Body)
		for i := range 3 {
			if !lines.Scan() || lines.Text() != fmt.Sprint("part ", i) {
				t.Fatalf("%s: %q, %v", kind, lines.Text(), lines.Err())
			}
			next <- struct{}{}
		}
		response.Body.Close()
	}
}

// TestWebsocket checks that after a handshake bytes pass in both directions until one side closes
// the connection.
func TestWebsocket(t *testing.T) {
	closed := make(chan error, 1)
	conn := connect(t, startBehindProxy(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		conn, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
		_, err = io.Copy(conn, buffer)
		closed <- err
	}))
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	from := bufio.NewReader(conn)
	response, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || response.Header.Get("RateLimit") == "" {
		t.Fatal(response.Status, response.Header)
	}
	for _, frame := range []string{"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", "\x88\x80\x00\x00\x00\x00"} {
		_, _ = io.WriteString(conn, frame)
		back := make([]byte, len(frame))
		if _, err := io.ReadFull(from, back); err != nil || string(back) != frame {
			t.Errorf("%q, %v", back, err)
		}
	}
	_ = conn.Close()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestNoWayToHTTP2 checks that a client cannot switch to a protocol in which requests would pass
// uncounted.
func TestNoWayToHTTP2(t *testing.T) {
	saw := make(chan receivedRequest, 1)
	p := newProxy(startServer(t, recordRequests(saw, respondAs)), Config{})
	for _, upgrade := range []string{"h2c", "H2C", "h2c, websocket", "websocket, h2c", "TLS/1.0", "\xff"} {
		got := ask(t, startServer(t, p), "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+upgrade+"\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n")
		if got.Status != "200 OK" {
			t.Errorf("%q: %s", upgrade, got.Status)
			continue
		}
		if h := (<-saw).Header; h["Upgrade"] != nil || h["Connection"] != nil || h["Http2-Settings"] != nil {
			t.Errorf("%q: the server gets %v", upgrade, h)
		}
	}
	if n := metricValue(p, `slidegate_server_failures_total{route="/"}`); n != "0" {
		t.Errorf("%s failures", n)
	}
}

const noAnswerBody = `{"title":"Bad Gateway","status":502,"detail":"The server does not answer. The request still counts."}` + "\n"

// TestDeadServer checks that every request gets 502 with problem details, that it is counted, and
// that the log has at most one line a second about such requests.
func TestDeadServer(t *testing.T) {
	nobody := httptest.NewServer(nil)
	nobody.Close()
	var lines logBuffer
	p := newProxy(nobody.URL, Config{Log: slog.New(slog.NewTextHandler(&lines, nil))})
	front := startServer(t, p)
	begin := time.Now()
	for range 50 {
		got := ask(t, front, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if got.Status != "502 Bad Gateway" || got.Header["Ratelimit"] == nil || got.Header.Get("Content-Type") != "application/problem+json" || got.Body != noAnswerBody {
			t.Fatal(got)
		}
	}
	if n := metricValue(p, `slidegate_server_failures_total{route="/"}`); n != "50" {
		t.Errorf("%s failures", n)
	}
	most := 1 + int(time.Since(begin)/time.Second)
	if n := lines.count(`level=ERROR msg="the server does not answer, so requests get 502"`); n < 1 || n > most {
		t.Errorf("%d lines, not 1 to %d", n, most)
	}
}

// TestServerBreaksOff checks that if the server truncates a response, it is truncated for the
// client too, and that the log has at most one line a second about it.
func TestServerBreaksOff(t *testing.T) {
	var lines logBuffer
	server := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	front := startServer(t, newProxy(server, Config{Log: slog.New(slog.NewTextHandler(&lines, nil))}))
	begin := time.Now()
	for range 20 {
		response, err := http.Get(front)
		if err == nil { // it may also break off immediately
			_, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
		if err == nil {
			t.Fatal("the response seems complete")
		}
	}
	most := 1 + int(time.Since(begin)/time.Second)
	if n := lines.count("is cut off"); n < 1 || n > most {
		t.Errorf("%d lines, not 1 to %d", n, most)
	}
}

// TestClientHangsUp checks that the server notices when a client disconnects, and that this is not
// counted as a failure of the server.
func TestClientHangsUp(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error)
	p := newProxy(startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		_, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			<-r.Context().Done()
			err = r.Context().Err()
		}
		ended <- err
	})), Config{})
	front := httptest.NewServer(p)
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"} {
		conn := connect(t, front.URL)
		_, _ = io.WriteString(conn, request)
		<-began
		_ = conn.Close()
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", request, err)
		}
	}
	front.Close() // waits until all requests are done
	if n := metricValue(p, `slidegate_server_failures_total{route="/"}`); n != "0" {
		t.Errorf("%s failures", n)
	}
}

// TestMalformedBody checks that a malformed body gets 400, and is not counted as a failure of the
// server.
func TestMalformedBody(t *testing.T) {
	p := newProxy(startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })), Config{})
	front := startServer(t, p)
	for _, body := range []string{"xyz\r\nabc\r\n0\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", "1;a\nb\r\nx\r\n0\r\n\r\n"} {
		if got := ask(t, front, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"+body); got.Status != "400 Bad Request" {
			t.Errorf("%q: %s", body, got.Status)
		}
	}
	if n := metricValue(p, `slidegate_server_failures_total{route="/"}`); n != "0" {
		t.Errorf("%s failures", n)
	}
}

// TestConnect checks that the proxy opens no tunnels.
func TestConnect(t *testing.T) {
	front := startBehindProxy(t, Config{}, func(http.ResponseWriter, *http.Request) { t.Error("it reached the server") })
	for _, target := range []string{"example.com:443", "/login"} {
		if got := ask(t, front, "CONNECT "+target+" HTTP/1.1\r\nHost: example.com:443\r\n\r\n"); got.Status != "405 Method Not Allowed" {
			t.Errorf("%s: %s", target, got.Status)
		}
	}
}

// TestServerThatLimits checks that the fields for the server's own limits are kept in addition to
// those of the proxy.
func TestServerThatLimits(t *testing.T) {
	front := startBehindProxy(t, Config{}, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("RateLimit", `"own";r=1`) })
	got := ask(t, front, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").Header["Ratelimit"]
	if diff := cmp.Diff([]string{`"1000000/1h";r=999999`, `"own";r=1`}, got); diff != "" {
		t.Error(diff)
	}
}
