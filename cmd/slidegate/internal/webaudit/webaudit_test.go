package webaudit

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slidegate/slidegate/audit"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/proxy"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

var discardLog = slog.New(slog.DiscardHandler)

// login responds to /login, in upper or lower case, and to nothing else.
var login = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.URL.Path, "/login") {
		http.NotFound(w, r)
		return
	}
	_, _ = io.WriteString(w, "welcome")
})

func claims(t *testing.T, text string) []window.Limit {
	t.Helper()
	limits, err := audit.ParseClaims(text)
	if err != nil {
		t.Fatal(err)
	}
	return limits
}

// limitedHandler returns the service behind httplimit, with budgets of its own.
func limitedHandler(t *testing.T, key httplimit.Key, legacy bool) http.Handler {
	t.Helper()
	l, err := window.NewLocal(window.Config{Name: "audit", Limits: claims(t, "20/1s")})
	if err != nil {
		t.Fatal(err)
	}
	m, err := httplimit.New(httplimit.Config{Limiter: l, Key: key, Outage: httplimit.FailClosed, LegacyHeaders: legacy, Log: discardLog})
	if err != nil {
		t.Fatal(err)
	}
	return m.Wrap(login)
}

// proxiedHandler returns the service behind the proxy.
func proxiedHandler(t *testing.T) http.Handler {
	t.Helper()
	s := httptest.NewServer(login)
	t.Cleanup(s.Close)
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxy.New(proxy.Config{To: to, Routes: []proxy.Route{{Pattern: "/", Limits: claims(t, "20/1s"), Key: httplimit.Clients{}.Key}}, Name: "audit", Log: discardLog})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// trustsForwardedFor returns a service that takes the client's address from a header field that any
// client can send.
func trustsForwardedFor(t *testing.T) http.Handler {
	return limitedHandler(t, func(r *http.Request) string {
		return r.Header.Get("X-Forwarded-For") + r.RemoteAddr[:strings.LastIndex(r.RemoteAddr, ":")]
	}, false)
}

// caseSensitive returns a service that limits only one spelling of its route.
func caseSensitive(t *testing.T) http.Handler {
	limit := limitedHandler(t, httplimit.Clients{}.Key, false)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/login" {
			limit.ServeHTTP(w, r)
			return
		}
		login(w, r)
	})
}

// alternatingInstances returns a service with two instances behind a load balancer. Each instance
// has its own counts.
func alternatingInstances(t *testing.T) http.Handler {
	var requests atomic.Int64
	each := []http.Handler{limitedHandler(t, httplimit.Clients{}.Key, false), limitedHandler(t, httplimit.Clients{}.Key, false)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { each[requests.Add(1)%2].ServeHTTP(w, r) })
}

// overstatesRemaining returns a service that announces more remaining requests than it allows.
func overstatesRemaining(t *testing.T) http.Handler {
	limit := limitedHandler(t, httplimit.Clients{}.Key, false)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Remaining", "7")
		limit.ServeHTTP(w, r)
	})
}

// zeroRetryAfter returns a service whose Retry-After is always 0.
func zeroRetryAfter(t *testing.T) http.Handler {
	limit := limitedHandler(t, httplimit.Clients{}.Key, false)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { limit.ServeHTTP(noWait{w}, r) })
}

type noWait struct{ http.ResponseWriter }

func (w noWait) WriteHeader(status int) {
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "0")
		w.Header().Del("RateLimit")
	}
	w.ResponseWriter.WriteHeader(status)
}

// perPath returns a service that responds to any path, with a separate limit for each.
func perPath(t *testing.T) http.Handler {
	l, err := window.NewLocal(window.Config{Name: "audit", Limits: claims(t, "20/1s")})
	if err != nil {
		t.Fatal(err)
	}
	m, err := httplimit.New(httplimit.Config{Limiter: l, Key: func(r *http.Request) string { return r.URL.Path }, Outage: httplimit.FailClosed, Log: discardLog})
	if err != nil {
		t.Fatal(err)
	}
	return m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "welcome") }))
}

// service is a server, with the findings that an audit must report for it.
type service struct {
	name    string
	handler http.Handler
	kinds   []audit.Kind
	like    string
	busy    audit.Kind // a further true finding, which may replace those in kinds on a busy machine
}

// TestServices checks that an audit finds each fault of a service and nothing else, and that it
// never sends more requests or takes longer than announced. On a busy machine an audit proves less,
// so up to three audits of each service are made.
func TestServices(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 40 s")
	}
	services := []service{
		{"httplimit", limitedHandler(t, httplimit.Clients{}.Key, false), nil, "", ""},
		{"httplimit with legacy headers", limitedHandler(t, httplimit.Clients{}.Key, true), nil, "", ""},
		{"proxy", proxiedHandler(t), nil, "", ""},
		{"per connection", limitedHandler(t, func(r *http.Request) string { return r.RemoteAddr }, false), []audit.Kind{Connection}, "", audit.KindRace},
		{"trusts X-Forwarded-For", trustsForwardedFor(t), []audit.Kind{Forged}, "", ""},
		{"case-sensitive route", caseSensitive(t), []audit.Kind{Spelling}, "", ""},
		{"query in the key", limitedHandler(t, func(r *http.Request) string { return "somebody?" + r.URL.RawQuery }, false), []audit.Kind{Query}, "", ""},
		{"method in the key", limitedHandler(t, func(r *http.Request) string { return r.Method }, false), []audit.Kind{Method}, "", ""},
		{"two instances behind a balancer", alternatingInstances(t), []audit.Kind{audit.KindExcess}, "twice the limit", ""},
		{"announces too much", overstatesRemaining(t), []audit.Kind{Fields}, "", ""},
		{"waits of zero", zeroRetryAfter(t), []audit.Kind{Fields}, "", ""},
		{"a limit for each path, and any path is served", perPath(t), nil, "", ""},
	}
	var group errgroup.Group // all at the same time, because they mostly wait
	for _, s := range services {
		group.Go(func() error {
			for range 3 {
				named, err := s.audit(t.Context(), claims(t, "20/1s"))
				if named || err != nil {
					return err
				}
			}
			return fmt.Errorf("%s: not found: %v", s.name, s.kinds)
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// audit audits the service. It reports whether the audit found all kinds. If the audit found
// anything else, it returns an error.
func (s service) audit(ctx context.Context, limits []window.Limit) (named bool, err error) {
	var served atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		s.handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	u, err := parseURL(server.URL + "/login")
	if err != nil {
		return false, err
	}
	a, err := New(ctx, Config{URL: u, Claims: limits})
	if err != nil {
		return false, err
	}
	r, err := a.Run(ctx)
	if err != nil {
		return false, err
	}
	if n := served.Load(); n > int64(a.Requests) || n != r.Requests || r.Took > a.Time {
		return false, fmt.Errorf("%s: %d requests received, %d sent in %v; announced %d in %v", s.name, n, r.Requests, r.Took, a.Requests, a.Time)
	}
	found := 0
	for _, f := range r.Findings {
		if f.Kind == s.busy {
			return false, nil
		}
		if !slices.Contains(s.kinds, f.Kind) {
			return false, fmt.Errorf("%s: %v", s.name, f)
		}
		found++
	}
	return found == len(s.kinds) && strings.HasPrefix(r.Like, s.like), nil
}

func mustParseURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := parseURL(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func newAudit(t *testing.T, cfg Config) *Audit {
	t.Helper()
	a, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func runAudit(t *testing.T, a *Audit) *Report {
	t.Helper()
	r, err := a.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestOwn checks that a service that is neither on this machine nor in a private network requires
// Own.
func TestOwn(t *testing.T) {
	for _, tt := range []struct {
		url      string
		own, may bool
	}{
		{"http://127.0.0.1:1/", false, true},
		{"http://[::1]:1/", false, true},
		{"http://10.1.2.3/", false, true},
		{"http://[fd00::1]/", false, true},
		{"http://198.51.100.7/", false, false},
		{"http://198.51.100.7/", true, true},
		{"http://[2001:db8::1]/", false, false},
		{"http://169.254.169.254/", false, false},
		{"http://[::ffff:198.51.100.7]/", false, false},
		{"http://0.0.0.0/", true, false},
		{"http://224.0.0.1/", true, false},
	} {
		_, err := New(t.Context(), Config{URL: mustParseURL(t, tt.url), Claims: claims(t, "20/1s"), Own: tt.own})
		if (err == nil) != tt.may {
			t.Errorf("%s, own %v: %v", tt.url, tt.own, err)
		}
	}
}

// TestURLs checks that parseURL rejects texts that are not the URL of a service.
func TestURLs(t *testing.T) {
	for _, text := range []string{"", "127.0.0.1:80", "ftp://localhost/", "http:///x", "http://me:secret@localhost/"} {
		if u, err := parseURL(text); err == nil {
			t.Errorf("%q is %v", text, u)
		}
	}
}

// TestSpaces checks that spaces in a URL are percent-encoded.
func TestSpaces(t *testing.T) {
	if got := mustParseURL(t, "http://127.0.0.1/a b?c d").RequestURI(); got != "/a%20b?c%20d" {
		t.Error(got)
	}
}

// TestRedirects checks that an audit does not follow redirects.
func TestRedirects(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer s.Close()
	a := newAudit(t, Config{URL: mustParseURL(t, s.URL), Claims: claims(t, "2/10ms")})
	r := runAudit(t, a)
	if elsewhere.Load() > 0 || r.Status[http.StatusFound] == 0 {
		t.Errorf("%d requests were made elsewhere; status %v", elsewhere.Load(), r.Status)
	}
	if !slices.ContainsFunc(r.NotTested, func(s string) bool { return strings.Contains(s, "redirects are not followed") }) {
		t.Errorf("not tested: %q", r.NotTested)
	}
}

// TestNeverRepeats checks that an audit does not repeat a request when the server closes the
// connection without a response.
func TestNeverRepeats(t *testing.T) {
	var served atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if served.Add(1)%3 == 0 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "x")
	}))
	defer s.Close()
	a := newAudit(t, Config{URL: mustParseURL(t, s.URL), Claims: claims(t, "5/20ms")})
	if r := runAudit(t, a); r.Requests != served.Load() || r.Unknown == 0 {
		t.Errorf("%d requests received of %d sent; %d had no answer", served.Load(), r.Requests, r.Unknown)
	}
}

// TestLargeAnswers checks that the client stops reading an endless body or an endless header.
func TestLargeAnswers(t *testing.T) {
	for _, begin := range []string{"Content-Length: 100000000\r\n\r\n", "X: "} {
		var written atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+begin)
			for part := strings.Repeat("x", 1<<20); err == nil && written.Load() < 100e6; {
				var n int
				n, err = io.WriteString(conn, part)
				written.Add(int64(n))
			}
		}))
		a := newAudit(t, Config{URL: mustParseURL(t, s.URL), Claims: claims(t, "5/20ms")})
		_, _ = a.client.send(t.Context(), a.base)
		s.Close()
		if n := written.Load(); n > 30e6 { // mostly system buffers
			t.Errorf("%q: it took %d bytes", begin, n)
		}
	}
}

// TestLate checks that an audit reports its findings even if a response needed to try a bypass
// arrives too late.
func TestLate(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/login" {
			<-r.Context().Done()
		}
	}))
	defer s.Close()
	a := newAudit(t, Config{URL: mustParseURL(t, s.URL+"/login"), Claims: claims(t, "5/20ms")})
	a.Time -= waysTime + reserve
	if r := runAudit(t, a); !r.Found(audit.KindExcess) || r.Took < a.Time {
		t.Errorf("found %v in %v", r.Findings, r.Took)
	}
}

// TestDates checks that an audit does not judge a Retry-After that is a date, because the service's
// clock is unknown.
func TestDates(t *testing.T) {
	l, err := window.NewLocal(window.Config{Name: "audit", Limits: claims(t, "2/100ms")})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, err := l.Allow(r.Context(), "somebody"); err != nil || !d.Allowed {
			w.Header().Set("Retry-After", time.Now().Add(time.Minute).UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer s.Close()
	r := runAudit(t, newAudit(t, Config{URL: mustParseURL(t, s.URL), Claims: claims(t, "2/100ms")}))
	if len(r.Findings) > 0 || r.Denied == 0 || !slices.Contains(r.NotTested, "waits: Retry-After is a date, and the clock of the service is unknown") {
		t.Errorf("%d denied, found %v, not tested: %q", r.Denied, r.Findings, r.NotTested)
	}
}

// TestHTTP2 checks that the client uses HTTP/2 if the server supports it.
func TestHTTP2(t *testing.T) {
	for _, speaks := range []bool{true, false} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
		s.EnableHTTP2 = speaks
		s.StartTLS()
		a := newAudit(t, Config{URL: mustParseURL(t, s.URL), Claims: claims(t, "5/20ms")})
		a.client.trust = s.Client().Transport.(*http.Transport).TLSClientConfig
		a.client.url.Host = strings.Replace(a.client.url.Host, "127.0.0.1", "example.com", 1) // the name in the certificate
		got, spoken, err := a.client.sendHTTP2(t.Context(), a.base)
		if err == nil && spoken != (got.body == "HTTP/2.0") || spoken != speaks {
			t.Errorf("speaks it: %v; %v %v %v", speaks, got.body, spoken, err)
		}
		if got, err := a.client.send(t.Context(), a.base); err != nil || got.body != "HTTP/1.1" {
			t.Errorf("%v, %v", got, err)
		}
		s.Close()
	}
}

// TestNeighbours checks that neighbours finds two addresses in the same /64.
func TestNeighbours(t *testing.T) {
	addrs := []net.Addr{}
	for _, text := range []string{"127.0.0.1/8", "::1/128", "fe80::1/64", "fe80::2/64", "2001:db8::1/64", "2001:db8:0:1::1/64", "2001:db8:0:1::2/128"} {
		ip, network, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, &net.IPNet{IP: ip, Mask: network.Mask})
	}
	a, b := neighbours(addrs)
	if a != netip.MustParseAddr("2001:db8:0:1::1") || b != netip.MustParseAddr("2001:db8:0:1::2") {
		t.Errorf("%v and %v", a, b)
	}
	if a, _ := neighbours(addrs[:6]); a.IsValid() {
		t.Errorf("%v has no neighbour", a)
	}
}

// TestInterrupt checks that an audit ends when ctx is done, with an error of a single line.
func TestInterrupt(t *testing.T) {
	s := httptest.NewServer(login)
	defer s.Close()
	a := newAudit(t, Config{URL: mustParseURL(t, s.URL+"/login"), Claims: claims(t, "5/1s")})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := a.Run(ctx); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v is not a sentence", err)
	}
}
