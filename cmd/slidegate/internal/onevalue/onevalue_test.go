package onevalue_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/onevalue"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/proxy"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/adapter"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestMain runs the tests. When run as a CGI program, it responds with what it reads instead.
func TestMain(m *testing.M) {
	if os.Getenv("GATEWAY_INTERFACE") == "" {
		os.Exit(m.Run())
	}
	read := values{Field: os.Getenv("HTTP_X_API_KEY")}
	for _, value := range cookieReaders["Go"](os.Getenv("HTTP_COOKIE")) {
		read.Cookie = value
	}
	fmt.Print("Content-Type: application/json\n\n")
	_ = json.NewEncoder(os.Stdout).Encode(read)
}

// values holds what a server reads from the header X-Api-Key and the cookie "session".
type values struct{ Field, Cookie string }

// startCGI starts a server that runs this program through CGI for each request.
func startCGI(t *testing.T) (at string) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(&cgi.Handler{Path: self})
	t.Cleanup(s.Close)
	return s.URL
}

// python returns a command that runs a Python 3 program for at most a minute.
func python(t *testing.T, program string) *exec.Cmd {
	t.Helper()
	path := redistest.Program(t, "python3", "python3")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, path, "-c", program)
}

// startPython starts a server that reads requests using Python's WSGI and http.cookies.
func startPython(t *testing.T) (at string) {
	server := python(t, `
import http.cookies, json, wsgiref.simple_server as wsgi
class Handler(wsgi.WSGIRequestHandler):
    def log_message(self, *args): pass
def app(env, start):
    jar = http.cookies.SimpleCookie()
    try: jar.load(env.get("HTTP_COOKIE", ""))
    except http.cookies.CookieError: pass
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"Field": env.get("HTTP_X_API_KEY", ""), "Cookie": jar["session"].value if "session" in jar else ""}).encode()]
server = wsgi.make_server("127.0.0.1", 0, app, handler_class=Handler)
print(server.server_port, flush=True)
server.serve_forever()`)
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return "http://127.0.0.1:" + strings.TrimSpace(port)
}

// front is a proxy in front of a server.
type front struct {
	address string
	counted atomic.Value // the key of the last request
}

// startFront starts a proxy that limits requests by the given key.
func startFront(t *testing.T, to string, key httplimit.Key) *front {
	f := &front{}
	at, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	route := proxy.Route{Pattern: "/", Limits: []window.Limit{window.PerHour(1_000_000)}, Key: func(r *http.Request) string {
		f.counted.Store(key(r))
		return key(r)
	}}
	p, err := proxy.New(proxy.Config{To: at, Name: "proxy", Routes: []proxy.Route{route}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	f.address = s.Listener.Addr().String()
	return f
}

// send sends a request with the given header fields. It returns the status, what the server read,
// and the value under which the proxy counted the request.
func (f *front) send(t *testing.T, fields string) (status int, read values, counted string) {
	conn, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute)) // so that a hang fails here
	f.counted.Store("")
	body := ""
	if strings.Contains(fields, "chunked") {
		body = "0\r\nX-Api-Key: REAL\r\n\r\n"
	}
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\n"+fields+"\r\n\r\n"+body)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		err = json.NewDecoder(res.Body).Decode(&read)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, counted, _ = strings.Cut(strings.TrimPrefix(f.counted.Load().(string), "header "), " ")
	return res.StatusCode, read, strings.TrimPrefix(counted, "session ")
}

// fieldSpellings lists header fields of requests, and the value of X-Api-Key under which each
// request must be counted. Requests without such a value get status 400.
var fieldSpellings = []struct{ fields, want string }{
	{"X-Api-Key: REAL", "REAL"},
	{"x-api-key:REAL ", "REAL"},
	{"X-Api-Key: REAL\r\nX-Api-Keys: other\r\nConnection: close\r\nX-Api: other", "REAL"},
	{"X-Api-Key: a, b", "a, b"},
	{"X-Api-Key: a\r\n b", "a b"},
	{"X-Api-Key: REAL\r\nContent-Length: 0", "REAL"},

	{"X-Other: REAL", ""},
	{"X-Api-Key:", ""},
	{"x_api_key: REAL", ""},
	{"X-Api-Key: random\r\nx_api_key: REAL", ""},
	{"x_api_key: REAL\r\nX-Api-Key: random", ""},
	{"X-Api-Key: random\r\nX-Api_Key: REAL", ""},
	{"X-Api-Key: random\r\nX_API-KEY: REAL", ""},
	{"X-Api-Key: random\r\nX.Api.Key: REAL", ""},
	{"X-Api-Key: random\r\nX~Api!Key: REAL", ""},
	{"X-Api-Key: random\r\nX-Api-Key: REAL", ""},
	{"X-Api-Key: random\r\nX-Api-Key:", ""},
	{"X-Api-Key:\r\nx_api_key: REAL", ""},
	{"X-Api-Key: random\r\nConnection: close, x-api-key", ""},
	{"X-Api-Key: random\r\nTransfer-Encoding: chunked\r\nTrailer: X-Api-Key", ""},
	{"X-Api-Key: random\r\nTransfer-Encoding: chunked\r\nTrailer: x_api_key", ""},
	{"X-Api-Key : REAL", ""},
	{"X-Api-Key: REAL\xa0", ""},
	{"X-Api-Key: \x85REAL", ""},
	{"X-Api-Key: REAL\u00a0", ""},
}

// cookieSpellings lists Cookie header fields, and the value of the cookie "session" under which
// each request must be counted. Requests without such a value get status 400.
var cookieSpellings = []struct{ fields, want string }{
	{"session=REAL", "REAL"},
	{"a=b; session=REAL;c=d", "REAL"},
	{`session="REAL"`, "REAL"},
	{`session=REAL; json={"session":"x","y":"z"}`, "REAL"},
	{"session=REAL; ads=session=1:T=2; url=/?session=3&a=session", "REAL"},
	{"session=REAL; _session=a; session2=b; my-session=c; my.session=d", "REAL"},
	{"session=REAL; text=in a session", "REAL"},
	{"session=s:R/E.A-L+=; a=1", "s:R/E.A-L+="},
	{"$Version=1; session=REAL; $Path=/", "REAL"},
	{"session=R%45AL", "REAL"},
	{"session=RE%2bAL%3D", "RE+AL="},
	{"session=RE%20AL", "RE+AL"},

	{"other=REAL", ""},
	{"session=", ""},
	{"Session=REAL", ""},
	{"session=random; session=REAL", ""},
	{"session=random; Session=REAL", ""},
	{`session=random; session="R\105AL"`, ""},
	{`session="R\105AL"; session=random`, ""},
	{`session="R\105AL"`, ""},
	{"session=random; session =REAL", ""},
	{"session=random;\tsession\t=\tREAL", ""},
	{"session = REAL", ""},
	{"session=random; a=b session=REAL", ""},
	{"session=random; a=b session = REAL", ""},
	{"session=random; a=b\tsession=REAL", ""},
	{"session=random; a=b,session=REAL", ""},
	{"session=random,session=REAL", ""},
	{"session=REAL,1", ""},
	{"session=REAL a=1", ""},
	{`session="REAL a"`, ""},
	{"session; session=REAL", ""},
	{"session=REAL; session", ""},
	{"session=random; =session=REAL", ""},
	{"session=random; s%65ssion=REAL", ""},
	{"session=random; session%00x=REAL", ""},
	{"session=random; session[]=REAL", ""},
	{"session=random; session%5b0%5D=REAL", ""},
	{"session=random; \xa0session=REAL", ""},
	{"session=random; \xc2\xa0session\xe3\x80\x80=REAL", ""},
	{"session=random; session=\xff", ""},
	{`a="; session=random; b="; session=REAL`, ""},
	{`session="a; session=REAL; b"`, ""},
	{"session=random\r\nCookie: session=REAL", ""},
	{"session=REAL\r\nCookie: a=b", ""},
	{"session=REAL\r\nConnection: cookie", ""},
	{"session=REAL&1", ""},
	{"session=j:%22REAL%22", ""},
	{"session=j%3A%20%22REAL%22", ""},
}

// TestServersReadTheValueThatCounts sends different spellings of a header field and a cookie
// through a proxy to several servers. Each server must read the value that the proxy counts, unless
// the request gets status 400. Python ignores all cookies of a header field if it cannot parse one
// of them.
func TestServersReadTheValueThatCounts(t *testing.T) {
	for name, start := range map[string]func(*testing.T) string{"CGI": startCGI, "Python": startPython} {
		t.Run(name, func(t *testing.T) {
			to := start(t)
			field, cookie := startFront(t, to, onevalue.Header("X-Api-Key")), startFront(t, to, onevalue.Cookie("session"))
			for _, tt := range fieldSpellings {
				status, got, counted := field.send(t, tt.fields)
				if (status == http.StatusOK) != (tt.want != "") || counted != tt.want || got.Field != tt.want {
					t.Errorf("%q: status %d; counted as %q, not %q; the server reads %q", tt.fields, status, counted, tt.want, got.Field)
				}
			}
			for _, tt := range cookieSpellings {
				status, got, counted := cookie.send(t, "Cookie: "+tt.fields)
				if (status == http.StatusOK) != (tt.want != "") || counted != tt.want || got.Cookie != "" && unescaped(got.Cookie) != tt.want {
					t.Errorf("%q: status %d; counted as %q, not %q; the server reads %q", tt.fields, status, counted, tt.want, got.Cookie)
				}
			}
		})
	}
}

// unescaped returns a value in the form in which the proxy counts it: without quotes and
// percent-encodings.
func unescaped(value string) string {
	if len(value) > 1 && strings.HasPrefix(value, `"`) && strings.HasSuffix(value, `"`) {
		value = value[1 : len(value)-1]
	}
	return strings.ReplaceAll(percent(value), " ", "+")
}

// TestUnderscores checks cookies whose names PHP also accepts in other spellings.
func TestUnderscores(t *testing.T) {
	if got := onevalue.Cookie("a%41.b")(&http.Request{Header: http.Header{"Cookie": {"a%41.b=c; b=d"}}}); got != "cookie a%41.b c" {
		t.Errorf("%q", got)
	}
	key := onevalue.Cookie("my_session_")
	for line, want := range map[string]string{
		"my_session_=a; my-session_=b": "cookie my_session_ a", "my_session_=a; my.session_=b": "", "my_session_=a; my session_=b": "",
		"my_session_=a; my_session.=b": "", "my_session_=a; my_session =b": "", "my_session_=a; my[session_=b": "", "my_session_=a; +my+session%20=b": "",
	} {
		if got := key(&http.Request{Header: http.Header{"Cookie": {line}}}); got != want {
			t.Errorf("%s: %q, not %q", line, got, want)
		}
	}
}

// TestReadsAsPython checks that the tests' reader interprets cookies in the same way as Python,
// both for the spellings above and for random ones.
func TestReadsAsPython(t *testing.T) {
	lines := []string{"session=a; path=/; session=b", "path=/; session=a", "session=a; secure; x=1", "session=a; a/b=c; session=d", "$x=1; session=a; $y=2; session=b"}
	for _, tt := range cookieSpellings {
		lines = append(lines, tt.fields)
	}
	rnd, parts := rand.New(rand.NewPCG(3, 4)), []string{"session", "a", "=", ";", " ", "\t", ",", `"`, `\`, "101", "$", "path", "secure", "[", "/", "Wed, 01-Jan-2025 00:00:00 GMT", "ä"}
	for range 5000 {
		var line strings.Builder
		for range 1 + rnd.IntN(14) {
			line.WriteString(parts[rnd.IntN(len(parts))])
		}
		lines = append(lines, line.String())
	}
	in, _ := json.Marshal(lines)
	// Newer Python versions reject cookies with control characters. Our reader must behave like
	// older versions, because they accept more.
	reader := python(t, `
import http.cookies, json, re, sys
http.cookies._control_character_re = re.compile('(?!)') # matches nothing
def read(line):
    jar = http.cookies.SimpleCookie()
    try: jar.load(line)
    except http.cookies.CookieError: pass
    return {name: jar[name].value for name in jar}
print(json.dumps([read(line) for line in json.load(sys.stdin)]))`)
	reader.Stdin = strings.NewReader(string(in))
	out, err := reader.Output()
	var want []map[string]string
	if err == nil {
		err = json.Unmarshal(out, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range lines {
		if got := simpleCookie(line); fmt.Sprint(got) != fmt.Sprint(want[i]) {
			t.Errorf("%q: %q, in Python %q", line, got, want[i])
		}
	}
}

// FuzzOneFieldOneValue checks that no server reads a value other than the one that is counted. A
// server may read an empty cookie, which is equivalent to none.
func FuzzOneFieldOneValue(f *testing.F) {
	for _, name := range []string{"x_api_key", "X-Api_Key", "X.Api~Key", "X-Api-Keys", "X-Api-Key"} {
		f.Add(name, "REAL", "session=REAL")
	}
	for _, tt := range cookieSpellings {
		f.Add("X-Other", "REAL", tt.fields)
	}
	field, cookie := onevalue.Header("X-Api-Key"), onevalue.Cookie("session")
	f.Fuzz(func(t *testing.T, name, value, line string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\nX-Api-Key: random\r\n" + name + ": " + value + "\r\nCookie: " + line + "\r\n\r\n")))
		if err != nil {
			return
		}
		if counted, found := strings.CutPrefix(field(r), "header X-Api-Key "); found {
			for server, keep := range fieldReaders {
				for _, read := range readFields(r.Header, "X-Api-Key", keep) {
					if read != counted {
						t.Errorf("%q counts as %q, and %s reads %q", r.Header, counted, server, read)
					}
				}
			}
		}
		counted, found := strings.CutPrefix(cookie(r), "cookie session ")
		if !found {
			return
		}
		for server, read := range cookieReaders {
			for _, value := range read(strings.Join(r.Header["Cookie"], "; ")) {
				if value != "" && unescaped(value) != counted {
					t.Errorf("%q counts as %q, and %s reads %q", r.Header["Cookie"], counted, server, value)
				}
			}
		}
	})
}

// TestReasons checks what is logged about a request without a key.
func TestReasons(t *testing.T) {
	for _, tt := range []struct {
		key    httplimit.Key
		header http.Header
		want   string
	}{
		{onevalue.Header("X-Api-Key"), nil, "the header X-Api-Key is missing or empty"},
		{onevalue.Header("X-Api-Key"), http.Header{"X-Api-Key": {"a"}, "X_api_key": {"b"}}, "the header X-Api-Key has several values or spellings"},
		{onevalue.Cookie("session"), nil, "the cookie session is missing or empty"},
		{onevalue.Cookie("session"), http.Header{"Cookie": {"session=a; Session=b"}}, "the cookie session has several values or spellings"},
		{onevalue.Cookie("session"), http.Header{"Cookie": {"session=a b"}}, "servers could read only part of the cookie session"},
	} {
		why := adapter.WhyKeyless(t.Context(), func(ctx context.Context) {
			if key := tt.key((&http.Request{Header: tt.header}).WithContext(ctx)); key != "" {
				t.Errorf("%v: key %q", tt.header, key)
			}
		})
		if why != tt.want {
			t.Errorf("%v: %q; want %q", tt.header, why, tt.want)
		}
	}
}
