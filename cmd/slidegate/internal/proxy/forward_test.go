package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// made is a proxy to a server, with a budget for every address that is hardly used up, where cfg does not say otherwise.
func made(to string, cfg Config) *Proxy {
	cfg.To = must(url.Parse(to))
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Routes == nil {
		cfg.Routes = []Route{limited("/", "1000000/1h")}
	}
	cfg.Name, cfg.Outage = "proxy", Local
	return must(New(cfg))
}

// serving serves a handler until the test ends.
func serving(t *testing.T, h http.Handler) (at string) {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// through is where a handler is served behind a proxy.
func through(t *testing.T, cfg Config, h http.HandlerFunc) (at string) {
	return serving(t, made(serving(t, h), cfg))
}

// connect opens a connection to a server, for what no client would send.
func connect(t *testing.T, at string) net.Conn {
	conn := must(net.Dial("tcp", strings.TrimPrefix(at, "http://")))
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// A reply is a response that was read to its end.
type reply struct {
	Status  string
	Early   []string // what came before, as 103
	Length  int64
	Chunked []string
	Header  http.Header
	Body    string
	Trailer http.Header
}

// ask sends a request as it is written.
func ask(t *testing.T, at, request string) (got reply) {
	t.Helper()
	conn := connect(t, at)
	go func() { _, _ = io.WriteString(conn, request) }() // the answer may come before its end
	method, _, _ := strings.Cut(request, " ")
	for from := bufio.NewReader(conn); ; {
		r, err := http.ReadResponse(from, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%v to %.200s", err, request)
		}
		if r.StatusCode < 200 {
			if r.StatusCode != http.StatusContinue { // which can come from the proxy, from the server, or from both
				got.Early = append(got.Early, fmt.Sprint(r.Status, r.Header["Link"]))
			}
			continue
		}
		text := must(io.ReadAll(r.Body))
		_ = r.Body.Close()
		return reply{r.Status, got.Early, r.ContentLength, r.TransferEncoding, r.Header, string(text), r.Trailer}
	}
}

// metric is the text of a record of GET /metrics that begins so, but for that.
func metric(p *Proxy, begin string) string {
	w := httptest.NewRecorder()
	p.Admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if value, found := strings.CutPrefix(line, begin+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return "nothing"
}

// A seen is a request as a server sees it.
type seen struct {
	Method, Target, Host string
	Length               int64
	Chunked              []string
	Header               http.Header
	Body                 string
	Trailer              http.Header
}

// witness takes down requests before a handler answers them.
func witness(saw chan<- seen, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			text = []byte(err.Error())
		}
		saw <- seen{r.Method, r.RequestURI, r.Host, r.ContentLength, r.TransferEncoding, r.Header, string(text), r.Trailer}
		h(w, r)
	}
}

// various answers in the way that the request asks for.
func various(w http.ResponseWriter, r *http.Request) {
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

// TestNothingChanges: what the server gets and what the client gets is as without the proxy, but for the fields that it adds.
func TestNothingChanges(t *testing.T) {
	const end = "Connection: close\r\n\r\n"
	saw := make(chan seen, 1)
	server := serving(t, witness(saw, various))
	front := serving(t, made(server, Config{}))
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

// TestPathOfTheServer: that of the URL goes before those of requests, which keep their spelling.
func TestPathOfTheServer(t *testing.T) {
	saw := make(chan seen, 1)
	server := serving(t, witness(saw, various))
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
		_ = ask(t, serving(t, made(server+tt[0], Config{})), "GET "+tt[1]+" HTTP/1.1\r\nHost: a\r\n\r\n")
		if got := (<-saw).Target; got != tt[2] {
			t.Errorf("%q with %q: %q, not %q", tt[0], tt[1], got, tt[2])
		}
	}
}

// TestForged: what a client says of proxies never reaches the server, in whichever spelling, unless it is a proxy of ours: then it is kept, and added to.
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
		saw := make(chan seen, 1)
		_ = ask(t, through(t, Config{Behind: tt.behind}, witness(saw, various)), request)
		got := <-saw
		if diff := cmp.Diff(tt.want, got.Header); diff != "" {
			t.Errorf("behind %v (-want +got):\n%s", tt.behind, diff)
		}
		if diff := cmp.Diff(http.Header{"X-Sum": {"42"}}, got.Trailer); diff != "" {
			t.Errorf("behind %v, the trailers (-want +got):\n%s", tt.behind, diff)
		}
	}
}

// TestStream: each part of a response comes before the server goes on, as server-sent events have to, and where the length is not known.
func TestStream(t *testing.T) {
	for _, kind := range []string{"text/event-stream", "application/x-ndjson"} {
		next := make(chan struct{})
		front := through(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
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

// TestWebsocket: after a handshake, bytes go both ways until one side hangs up.
func TestWebsocket(t *testing.T) {
	closed := make(chan error, 1)
	conn := connect(t, through(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
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

// TestNoWayToHTTP2: a client cannot change to a protocol in which requests pass uncounted.
func TestNoWayToHTTP2(t *testing.T) {
	saw := make(chan seen, 1)
	p := made(serving(t, witness(saw, various)), Config{})
	for _, upgrade := range []string{"h2c", "H2C", "h2c, websocket", "websocket, h2c", "TLS/1.0", "\xff"} {
		got := ask(t, serving(t, p), "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+upgrade+"\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n")
		if got.Status != "200 OK" {
			t.Errorf("%q: %s", upgrade, got.Status)
			continue
		}
		if h := (<-saw).Header; h["Upgrade"] != nil || h["Connection"] != nil || h["Http2-Settings"] != nil {
			t.Errorf("%q: the server gets %v", upgrade, h)
		}
	}
	if n := metric(p, `slidegate_server_failures_total{route="/"}`); n != "0" {
		t.Errorf("%s failures", n)
	}
}

const noAnswerBody = `{"title":"Bad Gateway","status":502,"detail":"The server gives no answer. The request counts all the same."}` + "\n"

// TestDeadServer: every request gets 502 with problem details and is counted, and the log tells of it, but not of each.
func TestDeadServer(t *testing.T) {
	nobody := httptest.NewServer(nil)
	nobody.Close()
	var lines lines
	p := made(nobody.URL, Config{Log: slog.New(slog.NewTextHandler(&lines, nil))})
	front := serving(t, p)
	begin := time.Now()
	for range 50 {
		got := ask(t, front, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if got.Status != "502 Bad Gateway" || got.Header["Ratelimit"] == nil || got.Header.Get("Content-Type") != "application/problem+json" || got.Body != noAnswerBody {
			t.Fatal(got)
		}
	}
	if n := metric(p, `slidegate_server_failures_total{route="/"}`); n != "50" {
		t.Errorf("%s failures", n)
	}
	most := 1 + int(time.Since(begin)/time.Second)
	if n := lines.count(`level=ERROR msg="the server gives no answer, so requests get 502"`); n < 1 || n > most {
		t.Errorf("%d lines, not 1 to %d", n, most)
	}
}

// TestServerBreaksOff: so does the answer, and the log tells of it, but not of each.
func TestServerBreaksOff(t *testing.T) {
	var lines lines
	server := serving(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	front := serving(t, made(server, Config{Log: slog.New(slog.NewTextHandler(&lines, nil))}))
	begin := time.Now()
	for range 20 {
		response, err := http.Get(front)
		if err == nil { // or it breaks off at once
			_, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
		if err == nil {
			t.Fatal("the answer seems whole")
		}
	}
	most := 1 + int(time.Since(begin)/time.Second)
	if n := lines.count("breaks off"); n < 1 || n > most {
		t.Errorf("%d lines, not 1 to %d", n, most)
	}
}

// TestClientHangsUp: the server is told, and is not to blame.
func TestClientHangsUp(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error)
	p := made(serving(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
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
	front.Close() // when all requests are done
	if n := metric(p, `slidegate_server_failures_total{route="/"}`); n != "0" {
		t.Errorf("%s failures", n)
	}
}

// TestBodyThatIsNoHTTP: it gets 400, and the server is not to blame.
func TestBodyThatIsNoHTTP(t *testing.T) {
	p := made(serving(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })), Config{})
	front := serving(t, p)
	for _, body := range []string{"xyz\r\nabc\r\n0\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", "1;a\nb\r\nx\r\n0\r\n\r\n"} {
		if got := ask(t, front, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"+body); got.Status != "400 Bad Request" {
			t.Errorf("%q: %s", body, got.Status)
		}
	}
	if n := metric(p, `slidegate_server_failures_total{route="/"}`); n != "0" {
		t.Errorf("%s failures", n)
	}
}

// TestConnect: the proxy opens no tunnels.
func TestConnect(t *testing.T) {
	front := through(t, Config{}, func(http.ResponseWriter, *http.Request) { t.Error("it reached the server") })
	for _, target := range []string{"example.com:443", "/login"} {
		if got := ask(t, front, "CONNECT "+target+" HTTP/1.1\r\nHost: example.com:443\r\n\r\n"); got.Status != "405 Method Not Allowed" {
			t.Errorf("%s: %s", target, got.Status)
		}
	}
}

// TestServerThatLimits: the fields of the server's own limits stand beside those of the proxy.
func TestServerThatLimits(t *testing.T) {
	front := through(t, Config{}, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("RateLimit", `"own";r=1`) })
	got := ask(t, front, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").Header["Ratelimit"]
	if diff := cmp.Diff([]string{`"1000000/1h@1m";r=999999`, `"own";r=1`}, got); diff != "" {
		t.Error(diff)
	}
}
