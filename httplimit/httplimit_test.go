package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// TestWrongConfiguration checks the error of each mistake in Config.
func TestWrongConfiguration(t *testing.T) {
	const noKey = `slidegate: httplimit has no Key, which says who is limited; use the Key of httplimit.Clients. ` +
		`The Key is also nil if Header or Cookie got an empty or invalid name, or if And got a nil Key`
	const noLimiter = `slidegate: httplimit has no Limiter; create one with window.New or ar1.New, or set Choose or Checks`
	with := func(field string) string {
		return `slidegate: httplimit has Checks and ` + field + `; leave one out, since each check has its own Event and units, which are not given back or settled`
	}
	l := inMemory(nil, "1/1h")
	noChecks := func(*http.Request) []window.Check { return nil }
	for _, of := range []struct {
		cfg  httplimit.Config
		want string
	}{
		{httplimit.Config{}, noLimiter},
		{httplimit.Config{Limiter: (*window.Limiter)(nil)}, noLimiter},
		{httplimit.Config{Limiter: l}, noKey},
		{httplimit.Config{Choose: always(l)}, noKey},
		{httplimit.Config{Limiter: l, Choose: always(l), Checks: noChecks}, `slidegate: httplimit has Limiter and Choose and Checks; set only one of them`},
		{httplimit.Config{Choose: always(l), Checks: noChecks}, `slidegate: httplimit has Choose and Checks; set only one of them`},
		{httplimit.Config{Checks: noChecks, Key: address}, with("Key")},
		{httplimit.Config{Checks: noChecks, Cost: func(*http.Request) int64 { return 1 }}, with("Cost")},
		{httplimit.Config{Checks: noChecks, CountOnly: isFailure}, with("CountOnly")},
		{httplimit.Config{Checks: noChecks, CostAfter: reported}, with("CostAfter")},
		{httplimit.Config{Checks: noChecks}, `slidegate: httplimit has the Outage ""; choose "open" to allow requests while the limiter does not answer, or "closed" to refuse them`},
		{httplimit.Config{Limiter: l, Key: address}, `slidegate: httplimit has the Outage ""; choose "open" to allow requests while the limiter does not answer, or "closed" to refuse them`},
		{httplimit.Config{Limiter: l, Key: address, Outage: "Open"}, `slidegate: httplimit has the Outage "Open"; choose "open" to allow requests while the limiter does not answer, or "closed" to refuse them`},
	} {
		if m, err := httplimit.New(of.cfg); m != nil || err == nil || err.Error() != of.want {
			t.Errorf("%v\nnot: %s", err, of.want)
		}
	}
}

// TestWrongProxies checks the error for each kind of invalid proxy.
func TestWrongProxies(t *testing.T) {
	for _, proxy := range []string{
		"", "10.0.0.1:80", "proxy.example.com", "10.0.0.0/33", "0.0.0.0/0", "10.0.0.5/24", "fe80::1%eth0", "::ffff:10.0.0.1", "::ffff:10.0.0.0/8",
	} {
		want := fmt.Sprintf("slidegate: the proxy %q is not a plain address or network; write one as 10.0.0.1 or 10.0.0.0/24", proxy)
		if _, err := httplimit.ClientsBehind("10.0.0.1", proxy); err == nil || err.Error() != want {
			t.Errorf("%q: %v", proxy, err)
		}
	}
}

// TestWrongClients checks the errors for other invalid arguments.
func TestWrongClients(t *testing.T) {
	errorOf := func(_ httplimit.Clients, err error) string { return fmt.Sprint(err) }
	const noProxy = "slidegate: no proxy is named; name those that you run, or use the zero Clients if there are none"
	const noHops = " hops cannot identify a client; count the entries that your proxies add to X-Forwarded-For, or use the zero Clients if there are none"
	const noHeader = " cannot be a header with the client's address; write one that your proxy sets, such as CF-Connecting-IP"
	for _, of := range [][2]string{
		{errorOf(httplimit.ClientsBehind()), noProxy},
		{errorOf(httplimit.ClientsByHops(0)), "slidegate: 0" + noHops},
		{errorOf(httplimit.ClientsByHops(-1)), "slidegate: -1" + noHops},
		{errorOf(httplimit.ClientsIn("", "10.0.0.1")), `slidegate: ""` + noHeader},
		{errorOf(httplimit.ClientsIn("host", "10.0.0.1")), `slidegate: "host"` + noHeader},
		{errorOf(httplimit.ClientsIn("X-Real-IP")), noProxy},
	} {
		if of[0] != of[1] {
			t.Errorf("%s\nnot: %s", of[0], of[1])
		}
	}
}

// TestWrongWrap checks that a programming mistake panics at startup, and not at the first request.
func TestWrongWrap(t *testing.T) {
	for want, wrap := range map[string]func(){
		"slidegate: this Middleware is nil or zero; create it with httplimit.New":  func() { (*httplimit.Middleware)(nil).Wrap(fine) },
		"slidegate: Wrap got a nil handler; pass the one that serves the requests": func() { middleware(httplimit.Config{Limiter: inMemory(nil, "1/1h")}).Wrap(nil) },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("%v, not %s", got, want)
				}
			}()
			wrap()
		}()
	}
}

// TestCost checks that requests cost what Cost returns. Requests that cost nothing are not counted,
// and get no fields.
func TestCost(t *testing.T) {
	h := middleware(httplimit.Config{Limiter: inMemory(nil, "5/1h"), Cost: func(r *http.Request) int64 { return r.ContentLength }}).Wrap(fine)
	for _, of := range []struct {
		cost int64
		want int
		left string
	}{
		{3, 200, `"5/1h";r=2;t=3600`}, {0, 200, ""}, {-1, 400, ""}, {3, 429, `"5/1h";r=2;t=3600`}, {2, 200, `"5/1h";r=0;t=3600`}, {0, 200, ""}, {6, 413, ""}, {1, 429, `"5/1h";r=0;t=3600`},
	} {
		w := ask(h, func(r *http.Request) { r.ContentLength = of.cost })
		if left := w.Header().Get("RateLimit"); w.Code != of.want || left != of.left {
			t.Errorf("cost %d: %d, %s", of.cost, w.Code, left)
		}
		if isProblem := w.Header().Get("Content-Type") == "application/problem+json"; isProblem != (of.want >= 400) {
			t.Errorf("cost %d: %v", of.cost, w.Header())
		}
		if of.cost < 0 && !strings.Contains(w.Body.String(), "The server could not determine what the request costs.") {
			t.Error(w.Body)
		}
	}
}

// TestDeadlineExceeded checks that it counts as an outage if a request's deadline passes before the
// decision, and that it does not if the client has gone.
func TestDeadlineExceeded(t *testing.T) {
	over, end := context.WithDeadline(t.Context(), time.Now())
	defer end()
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, of := range []struct {
		ctx    context.Context
		outage httplimit.Outage
		want   int
		logs   bool
	}{
		{over, httplimit.FailOpen, http.StatusOK, true},
		{over, httplimit.FailClosed, http.StatusServiceUnavailable, true},
		{gone, httplimit.FailOpen, http.StatusServiceUnavailable, false},
		{gone, httplimit.FailClosed, http.StatusServiceUnavailable, false},
	} {
		var log logBuffer
		h := middleware(httplimit.Config{Limiter: inMemory(nil, "1/1h"), Outage: of.outage, Log: log.logger()}).Wrap(fine)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(of.ctx))
		if w.Code != of.want || (log.String() != "") != of.logs {
			t.Errorf("%+v: %d, %q", of, w.Code, &log)
		}
		if w := ask(h); w.Code != http.StatusOK {
			t.Errorf("it was counted: %d", w.Code)
		}
	}
}

// TestKeyless checks that only the first request without a key is logged, with the reason from each
// Key, and that the log contains no value that a client sent.
func TestKeyless(t *testing.T) {
	header, behind := httplimit.Header("X-Api-Key"), must(httplimit.ClientsBehind(proxies...)).Key
	hops, in := must(httplimit.ClientsByHops(2)).Key, must(httplimit.ClientsIn("X-Real-IP", proxies...)).Key
	const from10, behindRemedy = `a request from "10.0.0.1:1" has no client address: `, "; each proxy must add the address that it was called from to X-Forwarded-For"
	const hopsRemedy, inRemedy = "; the proxies must add 2 entries to X-Forwarded-For, the first of them the client's address", "; the proxy must set X-Real-Ip to one address, in one line"
	for _, of := range []struct {
		key    httplimit.Key
		header http.Header
		want   string
	}{
		{httplimit.Route, nil, "Route found no pattern: wrap the handlers inside the router and not the router, or use RouteBy"},
		{header, nil, "the header X-Api-Key is missing or empty"},
		{header, http.Header{"X-Api-Key": {"secret", "other"}}, "the header X-Api-Key has several values"},
		{httplimit.Cookie("session"), nil, "the cookie session is missing or empty"},
		{behind, nil, from10 + "X-Forwarded-For is missing" + behindRemedy},
		{behind, http.Header{"X-Forwarded-For": {"10.0.0.2"}}, from10 + "X-Forwarded-For has too few entries" + behindRemedy},
		{behind, http.Header{"X-Forwarded-For": {"198.51.100.7, secret"}}, from10 + "an entry of X-Forwarded-For is not an IP address" + behindRemedy},
		{hops, nil, from10 + "X-Forwarded-For is missing" + hopsRemedy},
		{hops, http.Header{"X-Forwarded-For": {"198.51.100.7,"}}, from10 + "X-Forwarded-For has too few entries" + hopsRemedy},
		{in, nil, from10 + "X-Real-Ip is missing" + inRemedy},
		{in, http.Header{"X-Real-Ip": {"198.51.100.7", "secret"}}, from10 + "X-Real-Ip has several lines" + inRemedy},
		{in, http.Header{"X-Real-Ip": {"secret"}}, from10 + "X-Real-Ip is not one IP address" + inRemedy},
		{header.And(httplimit.Route), http.Header{"X-Api-Key": {"secret"}}, "Route found no pattern: wrap the handlers inside the router and not the router, or use RouteBy"},
		{func(*http.Request) string { return "" }, nil, "the Key returned an empty string"},
	} {
		var log logBuffer
		h := middleware(httplimit.Config{Limiter: inMemory(nil, "1/1h"), Key: of.key, Log: log.loggerOf("level", "msg", "reason")}).Wrap(fine)
		for range 3 {
			w := ask(h, func(r *http.Request) { r.RemoteAddr, r.Header = "10.0.0.1:1", of.header })
			if w.Code != http.StatusBadRequest || strings.Contains(w.Body.String(), of.want) {
				t.Errorf("%s: %d, %s", of.want, w.Code, w.Body)
			}
		}
		if got, want := log.String(), `level=WARN msg="slidegate: requests without a key are refused; only the first is logged" reason=`+strconv.Quote(of.want)+"\n"; got != want {
			t.Errorf("the log has\n%snot\n%s", got, want)
		}
	}
}

// TestNilKey checks that New rejects a nil Key, which the constructors return for wrong arguments.
func TestNilKey(t *testing.T) {
	for i, key := range []httplimit.Key{
		httplimit.Key(nil).And(address), address.And(nil),
		httplimit.Header(""), httplimit.Header("X Key"), httplimit.Header("X-Key:"), httplimit.Header("Schlüssel"), httplimit.Header("host"), httplimit.Cookie(""), httplimit.Cookie("a=b"), httplimit.RouteBy(nil),
		httplimit.Header("").And(address),
	} {
		if _, err := httplimit.New(httplimit.Config{Limiter: inMemory(nil, "1/1h"), Key: key, Outage: httplimit.FailOpen}); err == nil || !strings.Contains(err.Error(), "has no Key") {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestRefusalsAreNotCached checks that a refusal drops headers about another body, and forbids
// caching.
func TestRefusalsAreNotCached(t *testing.T) {
	h := middleware(httplimit.Config{Limiter: inMemory(nil, "1/1h")}).Wrap(fine)
	ask(h)
	w := httptest.NewRecorder()
	for name, value := range map[string]string{"Content-Length": "4", "Content-Encoding": "gzip", "Etag": "a", "Last-Modified": "b", "Cache-Control": "public"} {
		w.Header().Set(name, value)
	}
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if got := w.Header(); w.Code != 429 || got.Get("Cache-Control") != "no-store" || got.Get("Content-Length")+got.Get("Content-Encoding")+got.Get("Etag")+got.Get("Last-Modified") != "" {
		t.Error(w.Code, got)
	}
}
