package httplimit_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// member is one limit in a field: its name and its parameters.
type member struct {
	name    string
	numbers map[string]int64
}

// maxInteger is the largest integer of a structured field.
const maxInteger = 999_999_999_999_999

// These regular expressions are the part of the grammar of RFC 9651 that RateLimit fields use:
// strings with parameters that are integers.
var (
	memberOfList = regexp.MustCompile(`^[ \t]*"((?:[ !#-\[\]-~]|\\["\\])*)"((?:; *[a-z*][a-z0-9_.*-]*=-?[0-9]{1,15})*)[ \t]*(,|$)`)
	parameter    = regexp.MustCompile(`([^; =]+)=([^;]+)`)
)

// members parses a field as clients do. It shares no code with the implementation.
func members(t *testing.T, h http.Header, name string) (all []member) {
	t.Helper()
	rest := strings.Join(h.Values(name), ",")
	for more := rest != ""; more; {
		found := memberOfList.FindStringSubmatch(rest)
		if found == nil {
			t.Fatalf("%s %q is not a list from %q on", name, h.Values(name), rest)
		}
		m := member{strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(found[1]), map[string]int64{}}
		for _, p := range parameter.FindAllStringSubmatch(found[2], -1) {
			m.numbers[p[1]] = must(strconv.ParseInt(p[2], 10, 64))
		}
		all = append(all, m)
		rest, more = rest[len(found[0]):], found[3] == ","
	}
	return all
}

// TestFields checks that each field has one member per limit, with the numbers of the decision.
func TestFields(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	h := middleware(httplimit.Config{Limiter: inMemory(func() time.Time { return now }, "1/5s", "5/1h")}).Wrap(fine)
	for i, want := range []string{
		`200 [{1/5s map[q:1 w:5]} {5/1h map[q:5 w:3600]}] [{1/5s map[r:0 t:5]} {5/1h map[r:4]}] ""`,
		`429 [{1/5s map[q:1 w:5]} {5/1h map[q:5 w:3600]}] [{1/5s map[r:0 t:4]} {5/1h map[r:4]}] "4"`,
	} {
		w := ask(h)
		got := fmt.Sprintf("%d %v %v %q", w.Code, members(t, w.Header(), "RateLimit-Policy"), members(t, w.Header(), "RateLimit"), w.Header().Get("Retry-After"))
		if got != want {
			t.Errorf("request %d:\n     %s\nnot: %s", i+1, got, want)
		}
		now = now.Add(1500 * time.Millisecond)
	}
}

// TestFieldsOfAnyDecision checks every number in the fields for random decisions.
func TestFieldsOfAnyDecision(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		d := anyDecision(r)
		w := ask(middleware(httplimit.Config{Limiter: fixedLimiter{Decision: d}}).Wrap(fine))
		policies, limits := members(t, w.Header(), "RateLimit-Policy"), members(t, w.Header(), "RateLimit")
		if len(policies) != len(d.Usage) || len(limits) != len(d.Usage) {
			t.Fatalf("%d limits, %v, %v", len(d.Usage), policies, limits)
		}
		for i, u := range d.Usage {
			p, l := policies[i], limits[i]
			wait, waits := l.numbers["t"]
			whole, isWhole := p.numbers["w"]
			switch {
			case p.name != u.Limit.Label() || l.name != p.name:
				t.Fatalf("%v: called %q and %q", u, p.name, l.name)
			case p.numbers["q"] != min(u.Limit.Max, maxInteger) || l.numbers["r"] != min(u.Remaining, maxInteger):
				t.Fatalf("%v: %v %v", u, p, l)
			case isWhole != (u.Limit.Per%time.Second == 0) || isWhole && time.Duration(whole)*time.Second != u.Limit.Per:
				t.Fatalf("%v: %v", u, p)
			case waits != (u.RetryAfter > 0) || waits && !roundsUp(u.RetryAfter, wait):
				t.Fatalf("%v: %v", u, l)
			}
		}
		checkRetryAfter(t, w)
	}
}

// roundsUp reports whether whole is d in seconds, rounded up.
func roundsUp(d time.Duration, whole int64) bool {
	more := time.Duration(whole)*time.Second - d
	return more >= 0 && more < time.Second
}

// anyDecision returns a random decision.
func anyDecision(r *rand.Rand) (d window.Decision) {
	units := []int64{1, 5, 60, 61, maxInteger, maxInteger + 1, 1 << 53}
	d.Allowed = r.IntN(2) == 0
	for range 1 + r.IntN(5) {
		u := window.Usage{Limit: window.Limit{Max: units[r.IntN(len(units))], Per: time.Duration(1+r.Int64N(1<<uint(r.IntN(41)+1))) * time.Millisecond}}
		u.Remaining = r.Int64N(u.Limit.Max + 1)
		if r.IntN(2) == 0 {
			u.RetryAfter = time.Duration(r.Int64N(int64(u.Limit.Per))) + 1
		}
		if !d.Allowed {
			d.RetryAfter = max(d.RetryAfter, u.RetryAfter, 1)
		}
		d.Usage = append(d.Usage, u)
	}
	return d
}

// checkRetryAfter checks that a denial has exactly one Retry-After, which is no shorter than any t,
// and that other responses have no Retry-After.
func checkRetryAfter(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	values := w.Header().Values("Retry-After")
	if w.Code == http.StatusOK {
		if len(values) != 0 {
			t.Fatalf("allowed, with Retry-After %q", values)
		}
		return
	}
	if w.Code != http.StatusTooManyRequests || len(values) != 1 {
		t.Fatalf("status %d, Retry-After %q", w.Code, values)
	}
	after := must(strconv.ParseInt(values[0], 10, 64))
	for _, m := range members(t, w.Header(), "RateLimit") {
		if after < m.numbers["t"] {
			t.Fatalf("Retry-After %d, %v", after, m)
		}
	}
	if after < 1 {
		t.Fatalf("Retry-After %d", after)
	}
}

// TestNested checks that if one middleware wraps another, a response has the fields of both
// middlewares, and one Retry-After that is long enough for both.
func TestNested(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	outer := middleware(httplimit.Config{Limiter: inMemory(clock, "2/30s")})
	inner := middleware(httplimit.Config{Limiter: inMemory(clock, "1/5s")})
	h := outer.Wrap(inner.Wrap(fine))
	for i, want := range []string{
		`200 [{2/30s map[q:2 w:30]} {1/5s map[q:1 w:5]}] [{2/30s map[r:1]} {1/5s map[r:0 t:5]}] []`,
		`429 [{2/30s map[q:2 w:30]} {1/5s map[q:1 w:5]}] [{2/30s map[r:0 t:29]} {1/5s map[r:0 t:4]}] [29]`, // the inner denies: its 4 s are not enough
		`429 [{2/30s map[q:2 w:30]}] [{2/30s map[r:0 t:28]}] [28]`,                                         // the outer denies: the inner is not asked
	} {
		w := ask(h)
		got := fmt.Sprintf("%d %v %v %v", w.Code, members(t, w.Header(), "RateLimit-Policy"), members(t, w.Header(), "RateLimit"), w.Header().Values("Retry-After"))
		if got != want {
			t.Errorf("request %d:\n     %s\nnot: %s", i+1, got, want)
		}
		now = now.Add(time.Second)
	}
	now = now.Add(27 * time.Second)
	if w := ask(h); w.Code != http.StatusOK {
		t.Errorf("denied after Retry-After: %v", w.Header())
	}
}

// TestForeignFields checks that nothing breaks if an outer handler writes an invalid RateLimit
// field.
func TestForeignFields(t *testing.T) {
	inner := middleware(httplimit.Config{Limiter: inMemory(nil, "1/1h")}).Wrap(fine)
	ask(inner)
	for _, value := range []string{"", "limit=5", `"a";t="x"`, `("a" "b");t=99999`, `"a";t=99999`, "\x00", `"a`} {
		w := httptest.NewRecorder()
		w.Header().Set("RateLimit", value)
		inner.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		want := "3600"
		if value == `"a";t=99999` {
			want = "99999"
		}
		if after := w.Header().Get("Retry-After"); after != want {
			t.Errorf("%q: Retry-After %s, not %s", value, after, want)
		}
	}
}
