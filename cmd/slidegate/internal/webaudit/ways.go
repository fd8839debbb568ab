package webaudit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/audit"
)

// The kinds of findings that only an audit of a service can have.
const (
	Connection audit.Kind = "connection" // each connection has its own budget
	Forged     audit.Kind = "forged-address"
	Subnet     audit.Kind = "ipv6-subnet"
	Spelling   audit.Kind = "path-spelling"
	Query      audit.Kind = "query"
	Method     audit.Kind = "method"
	Host       audit.Kind = "host"
	HTTP2      audit.Kind = "http2"
	Fields     audit.Kind = "fields"
)

// Way is a way to bypass a limit that has been used up, with its outcome.
type Way struct {
	Kind    audit.Kind `json:"kind"`
	Name    string     `json:"name"`
	Open    bool       `json:"open"` // the audit proved that the way bypasses the limit
	Outcome string     `json:"outcome"`
}

// way sends a request that should share the budget of all other requests.
type way struct {
	kind audit.Kind
	name string
	send func(ctx context.Context) (answer, error)
}

// addressFields lists the header fields in which proxies send a client's IP address. Clients can
// send them too.
var addressFields = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Client-IP", "Client-IP", "True-Client-IP", "CF-Connecting-IP",
	"Fastly-Client-IP", "X-Cluster-Client-IP", "X-Originating-IP", "X-Remote-IP", "X-Remote-Addr",
}

// allWays returns the ways to try. New connections come first, because the other ways share a
// connection.
func (a *Audit) allWays() []way {
	ways := []way{{Connection, "a new connection for each request", func(ctx context.Context) (answer, error) {
		return a.client.sendAlone(ctx, a.base, netip.Addr{})
	}}}
	if a.cfg.URL.Scheme == "https" {
		ways = append(ways, way{HTTP2, "HTTP/2", a.sendHTTP2})
	}
	for _, name := range addressFields {
		ways = append(ways, way{Forged, name, func(ctx context.Context) (answer, error) {
			return a.client.send(ctx, a.with(name, randomAddress(name)))
		}})
	}
	return slices.Concat(ways, a.subnetWays(), a.spellings(), a.methods())
}

// with returns the usual request with an additional header field.
func (a *Audit) with(name, value string) request {
	r := a.base
	r.header = r.header.Clone()
	r.header.Set(name, value)
	return r
}

// randomAddress returns a value for the given header field that contains a random IP address from
// RFC 2544.
func randomAddress(field string) string {
	n := rand.N(1 << 17)
	address := netip.AddrFrom4([4]byte{198, byte(18 + n>>16), byte(n >> 8), byte(n)}).String()
	if field == "Forwarded" {
		return "for=" + address
	}
	return address
}

var errNotSpoken = errors.New("the server does not support it")

func (a *Audit) sendHTTP2(ctx context.Context) (answer, error) {
	got, spoken, err := a.client.sendHTTP2(ctx, a.base)
	if err == nil && !spoken {
		err = errNotSpoken
	}
	return got, err
}

// subnetWays returns a way that alternates between two addresses in the same IPv6 /64 network, if
// this machine has two.
func (a *Audit) subnetWays() []way {
	addrs, _ := net.InterfaceAddrs()
	if one, two := neighbours(addrs); one.IsValid() && a.client.addr.Addr().Is6() && !a.client.addr.Addr().IsLoopback() {
		calls := 0
		return []way{{Subnet, "another address of the same IPv6 /64", func(ctx context.Context) (answer, error) {
			calls++
			return a.client.sendAlone(ctx, a.base, []netip.Addr{one, two}[calls%2])
		}}}
	}
	return nil
}

// spellings returns ways that spell the target differently.
func (a *Audit) spellings() (ways []way) {
	path, query, _ := strings.Cut(a.base.target, "?")
	add := func(kind audit.Kind, target string) {
		if query != "" && kind == Spelling {
			target += "?" + query
		}
		if target == a.base.target {
			return
		}
		ways = append(ways, way{kind, target, func(ctx context.Context) (answer, error) {
			r := a.base
			r.target = target
			return a.client.send(ctx, r)
		}})
	}
	for _, spelled := range otherSpellings(path) {
		add(Spelling, spelled)
	}
	add(Spelling, a.cfg.URL.Scheme+"://"+a.cfg.URL.Host+path)
	separator := "?"
	if query != "" {
		separator = "?" + query + "&"
	}
	add(Query, path+separator+"audit=1")
	return ways
}

// otherSpellings returns other spellings of a path.
func otherSpellings(path string) (all []string) {
	rest := strings.TrimPrefix(path, "/")
	all = []string{"//" + rest, "/./" + rest, "/audit/../" + rest, "/%2e/" + rest, "/%2F" + rest}
	if rest == "" {
		return all
	}
	last := path[strings.LastIndex(path, "/")+1:]
	if last != "" {
		encoded := fmt.Sprintf("%%%02X", last[0])
		all = append(all, path+"/", path+"%2F", path+"/.", path+";audit=1", path[:len(path)-len(last)]+encoded+last[1:])
	}
	for _, other := range []string{strings.ToUpper(path), strings.ToLower(path)} {
		if other != path {
			all = append(all, other)
		}
	}
	return all
}

// methods returns ways that spell the method or the host differently. It avoids methods that could
// change more on the server than the usual request does.
func (a *Audit) methods() (ways []way) {
	add := func(kind audit.Kind, name string, change func(*request)) {
		ways = append(ways, way{kind, name, func(ctx context.Context) (answer, error) {
			r := a.base
			change(&r)
			return a.client.send(ctx, r)
		}})
	}
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		if a.base.method != method && (a.base.method == http.MethodGet || a.base.method == http.MethodHead) {
			add(Method, method, func(r *request) { r.method = method })
		}
	}
	lower := strings.ToLower(a.base.method)
	add(Method, lower, func(r *request) { r.method = lower })
	if upper := strings.ToUpper(a.base.host); upper != a.base.host {
		add(Host, upper, func(r *request) { r.host = upper })
	}
	add(Host, a.client.serverName()+".", func(r *request) {
		r.host = strings.Replace(r.host, a.client.serverName(), a.client.serverName()+".", 1)
	})
	return ways
}

const (
	maxTries       = 25 // the maximum number of requests for a way that seems open
	streakToProve  = 6
	allowedToProve = 3
)

// smallest returns the smallest Max of the claims. At most that many requests are allowed before a
// denial.
func (a *Audit) smallest() int {
	smallest := a.cfg.Claims[0].Max
	for _, l := range a.cfg.Claims {
		smallest = min(smallest, l.Max)
	}
	return int(min(smallest, 1<<20))
}

// wayRequests returns the maximum number of requests for all ways.
func (a *Audit) wayRequests() int { return 1 + 4*len(a.ways) + 8*(a.smallest()+2) + 6*maxTries }

// tester tries ways to bypass a limit.
type tester struct {
	*Audit
	log              []audit.Attempt // of the audit, and of the usual requests sent since
	claimsKept       bool            // no more requests were allowed than claimed
	spellingsBlocked string          // why spellings of the path prove nothing, or ""
	end              time.Time
	left             int
}

// tryWays tries all ways and adds the open ones to the report. unserved is the response to a path
// that the service does not have.
func (a *Audit) tryWays(ctx context.Context, r *Report, unserved *answer) {
	kept := !r.Found(audit.KindExcess) && !r.Found(audit.KindRace)
	t := &tester{Audit: a, log: r.Attempts, claimsKept: kept, end: time.Now().Add(waysTime), left: a.wayRequests()}
	switch {
	case unserved == nil:
		t.spellingsBlocked = "a path that does not exist gets no answer"
	case a.sample != nil && unserved.like(*a.sample, a.varies):
		t.spellingsBlocked = "any path gets the usual answer"
	}
	for _, w := range a.ways {
		way := Way{Kind: w.kind, Name: w.name}
		way.Open, way.Outcome = t.test(ctx, w)
		r.Ways = append(r.Ways, way)
	}
	a.addWays(r)
}

// probeUnserved returns the response to a path that the service does not have. If there is no
// response or the request is denied, it returns nil. Run calls it before the attacks, because they
// use up the budget.
func (a *Audit) probeUnserved(ctx context.Context) *answer {
	r := a.base
	r.target = fmt.Sprintf("/audit-%d", rand.N(1<<30))
	got, err := a.client.send(ctx, r)
	a.count(got)
	if is, _ := a.classify(got, err); is != audit.AnswerAllowed {
		return nil
	}
	return &got
}

// test reports whether w bypasses the limit, and describes the outcome.
func (t *tester) test(ctx context.Context, w way) (open bool, outcome string) {
	if w.kind == Spelling && t.spellingsBlocked != "" {
		return false, "not tested: " + t.spellingsBlocked
	}
	mine := []audit.Attempt{}
	streak := 0
	for range maxTries {
		if !t.exhaust(ctx) {
			return false, "not tested: the budget was not used up in the time and requests that are left"
		}
		got, a, err := t.attemptBy(ctx, w)
		switch {
		case errors.Is(err, errNotSpoken):
			return false, "not tested: " + err.Error()
		case err != nil:
			return false, "no answer"
		case a.Answer == audit.AnswerDenied:
			return false, "shares the budget"
		case !got.like(*t.sample, t.varies):
			return false, fmt.Sprintf("a different response, status %d", got.status)
		}
		mine = append(mine, a)
		if streak++; t.proven(mine, streak) {
			return true, "allowed while the budget was used up"
		}
		if !t.stillDenied(ctx) {
			streak = 0
		}
	}
	return false, "not proven: not enough requests were allowed"
}

// proven reports whether a way is proven to be open. If the service kept its claims so far, the
// proof is that it allowed more than the claims once the way's requests are included. Otherwise,
// the proof is a streak: every request of the way was allowed, while the usual requests before and
// after it were denied.
func (t *tester) proven(mine []audit.Attempt, streak int) bool {
	for _, l := range t.cfg.Claims {
		t.claimsKept = t.claimsKept && !audit.Exceeds(t.log, l)
	}
	if !t.claimsKept {
		return streak >= streakToProve
	}
	for _, l := range t.cfg.Claims {
		if streak >= min(allowedToProve, int(l.Max)) && audit.Exceeds(append(slices.Clip(t.log), mine...), l) {
			return true
		}
	}
	return false
}

// exhaust sends usual requests until one is denied.
func (t *tester) exhaust(ctx context.Context) bool {
	for range 3*t.smallest() + 5 {
		a, ok := t.sendUsual(ctx)
		if !ok || a.Answer == audit.AnswerDenied {
			return ok && t.sample != nil
		}
	}
	return false
}

// stillDenied sends a usual request, and reports whether it is denied.
func (t *tester) stillDenied(ctx context.Context) bool {
	a, ok := t.sendUsual(ctx)
	return ok && a.Answer == audit.AnswerDenied
}

// sendUsual sends a usual request. It returns false if the bounds allow no more requests.
func (t *tester) sendUsual(ctx context.Context) (audit.Attempt, bool) {
	if t.finished(ctx) {
		return audit.Attempt{}, false
	}
	a := audit.Attempt{Attack: "ways around", Sent: time.Since(t.began)}
	allowed, wait, err := t.attempt(ctx)
	a.Came, a.RetryAfter = time.Since(t.began), wait
	switch {
	case err != nil:
		a.Answer = audit.AnswerUnknown
	case allowed:
		a.Answer = audit.AnswerAllowed
	default:
		a.Answer = audit.AnswerDenied
	}
	t.log = append(t.log, a)
	return a, true
}

// attemptBy sends a request using the given way.
func (t *tester) attemptBy(ctx context.Context, w way) (got answer, a audit.Attempt, err error) {
	if t.finished(ctx) {
		return got, a, errBudget
	}
	began := t.tick()
	a = audit.Attempt{Attack: w.name, Sent: time.Since(t.began)}
	got, err = w.send(ctx)
	a.Came = time.Since(t.began)
	t.addObservation(observation{began: began, ended: t.tick(), unknown: true, promises: promises{remaining: -1, wait: -1, retryAfter: -1}})
	t.count(got)
	if err != nil {
		return got, a, err
	}
	a.Answer, _ = t.classify(got, nil)
	return got, a, nil
}

// finished counts a request, and reports whether the bounds rule it out.
func (t *tester) finished(ctx context.Context) bool {
	t.left--
	return t.left < 0 || ctx.Err() != nil || time.Now().After(t.end)
}

// addWays adds a finding for each kind of bypass that is open. If every connection has its own
// budget, this explains the other findings about the limit, so addWays removes those.
func (a *Audit) addWays(r *Report) {
	open := map[audit.Kind][]string{}
	for _, w := range r.Ways {
		if w.Open {
			open[w.Kind] = append(open[w.Kind], w.Name)
		}
	}
	r.NotTested = append(r.NotTested, untested(r.Ways)...)
	if len(a.subnetWays()) == 0 {
		r.NotTested = append(r.NotTested, "addresses of one IPv6 /64: this machine does not have two of them, or cannot reach the service over IPv6")
	}
	if len(open[Connection]) > 0 {
		r.Findings = slices.DeleteFunc(r.Findings, func(f audit.Finding) bool { return f.Kind != audit.KindNeedless })
		r.Like = ""
	}
	for _, k := range slices.Sorted(maps.Keys(open)) {
		f := wayFindings[k]
		f.Kind = k
		f.Seen = fmt.Sprintf("While the budget was used up, requests with the same response were allowed by: %s.", strings.Join(open[k], ", "))
		r.Findings = append(r.Findings, f)
	}
}

// untested returns why ways were not tested, and which ones.
func untested(ways []Way) (all []string) {
	why := map[string][]string{}
	for _, w := range ways {
		if reason, found := strings.CutPrefix(w.Outcome, "not "); found {
			why[reason] = append(why[reason], w.Name)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		names := strings.Join(why[reason], ", ")
		if len(why[reason]) == len(ways) {
			names = "all"
		}
		_, reason, _ = strings.Cut(reason, ": ")
		all = append(all, fmt.Sprintf("ways around the limit, because %s: %s", reason, names))
	}
	return all
}

// wayFindings explains the kinds of open ways.
var wayFindings = map[audit.Kind]audit.Finding{
	Connection: {
		Title:  "A new connection gets past the limit",
		Means:  "Each connection has its own budget, or connections reach instances that count separately.",
		Repair: "Count by client, in one place for all instances.",
	},
	HTTP2: {
		Title:  "HTTP/2 gets past the limit",
		Means:  "Each protocol has its own budget.",
		Repair: "Limit requests behind the point where the protocols merge.",
	},
	Forged: {
		Title:  "A forged header field gets past the limit",
		Means:  "A client can write another address into it in each request, and so has no limit.",
		Repair: "Use the address of the connection. Behind a proxy, trust only what your own proxies add.",
	},
	Subnet: {
		Title:  "Another address of the same IPv6 /64 gets past the limit",
		Means:  "A client has 2^64 such addresses, and so no limit.",
		Repair: "Count an IPv6 client by its /64.",
	},
	Spelling: {
		Title:  "Another spelling of the path gets past the limit",
		Means:  "The limiter and the service read the path differently.",
		Repair: "Limit by the route that the service has matched, or refuse spellings that can be read in two ways.",
	},
	Query: {
		Title:  "A query string gets past the limit",
		Means:  "The query is part of the key, and clients can invent one.",
		Repair: "Leave the query out of the key.",
	},
	Method: {
		Title:  "Another method gets past the limit",
		Means:  "The limit applies to one spelling of one method, but the service also accepts others.",
		Repair: "Limit the path under all methods, or refuse those that it does not need.",
	},
	Host: {
		Title:  "Another spelling of the host gets past the limit",
		Means:  "The host is part of the key, in the client's spelling.",
		Repair: "Normalize the host, or leave it out of the key.",
	},
}
