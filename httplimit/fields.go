package httplimit

import (
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/slidegate/slidegate/internal/adapter"
	"github.com/slidegate/slidegate/window"
)

// The RateLimit header fields, as net/http writes their names.
const (
	policyField = "Ratelimit-Policy"
	usageField  = "Ratelimit"
)

// The X-RateLimit headers, which predate the draft, as net/http writes their names.
const (
	legacyLimit     = "X-Ratelimit-Limit"
	legacyRemaining = "X-Ratelimit-Remaining"
	legacyReset     = "X-Ratelimit-Reset"
)

// setFields writes the limits, the remaining units and, after a denial, Retry-After. The limits are
// added to those that outer middleware has written. In Shadow, setFields writes nothing, because
// the client is not limited.
func (m *Middleware) setFields(h http.Header, v verdict) {
	if m.cfg.Shadow {
		return
	}
	outer, _ := longestWait(h, false)
	if len(v.Usage) > 0 {
		p := m.policyOf(v)
		h.Add(policyField, p.text)
		h.Add(usageField, listField(v.Usage, p.names, usageParams))
		if m.cfg.LegacyHeaders {
			setLegacy(h, v.Decision, time.Now())
		}
	}
	if !v.Allowed && !adapter.DeniesForever(v.Decision) {
		h.Set("Retry-After", strconv.FormatInt(max(ceilSeconds(v.RetryAfter), outer), 10))
	}
}

// setLegacy writes the X-RateLimit headers. They can describe only one limit: the one that would
// make another request like this one wait longest or, if none would make it wait, the one with the
// least remaining.
func setLegacy(h http.Header, d window.Decision, now time.Time) {
	d.Allowed = false
	u := d.Tightest()
	if u.RetryAfter <= 0 {
		d.Allowed = true
		u = d.Tightest()
	}
	reset := now.Add(u.RetryAfter)
	h.Set(legacyLimit, strconv.FormatInt(u.Limit.Max, 10))
	h.Set(legacyRemaining, strconv.FormatInt(u.Remaining, 10))
	h.Set(legacyReset, strconv.FormatInt(reset.Add(time.Second-1).Unix(), 10))
}

// policy holds the names of a verdict's limits, and the RateLimit-Policy value that describes them.
type policy struct {
	of    verdict
	names []string
	text  string
}

// policies caches policies. A Middleware has several if it uses plans, Checks, or a Fallback that
// has its own limits.
type policies [64]atomic.Pointer[policy]

// slot returns the cache slot for the policy of v, chosen by a hash of the limits.
func (p *policies) slot(v *verdict) *atomic.Pointer[policy] {
	const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio spreads numbers over the high bits
	var hash uint64
	for _, u := range v.Usage {
		hash = (hash + uint64(u.Limit.Max) + uint64(u.Limit.Per)) * golden
	}
	return &p[hash>>58]
}

// policyOf returns the policy of v, from the cache if possible.
func (m *Middleware) policyOf(v verdict) *policy {
	sameLimit := func(a, b window.Usage) bool { return a.Limit == b.Limit }
	slot := m.policies.slot(&v)
	last := slot.Load()
	if last != nil && slices.EqualFunc(last.of.Usage, v.Usage, sameLimit) && slices.Equal(last.of.limiters, v.limiters) {
		return last
	}
	v.Usage = slices.Clone(v.Usage)
	p := &policy{of: v, names: v.names()}
	p.text = listField(v.Usage, p.names, policyParams)
	slot.Store(p)
	return p
}

// listField encodes a list that has a named item for each limit. Marshal cannot fail for these
// items.
func listField(of []window.Usage, names []string, params func(*httpsfv.Params, window.Usage)) string {
	items := make(httpsfv.List, len(of))
	for i, u := range of {
		item := httpsfv.NewItem(names[i])
		params(item.Params, u)
		items[i] = item
	}
	text, _ := httpsfv.Marshal(items)
	return text
}

// policyParams adds the parameters of a limit: q, the units, and w, the window in seconds. It omits
// w if the window is not a whole number of seconds.
func policyParams(p *httpsfv.Params, u window.Usage) {
	p.Add("q", min(u.Limit.Max, maxInteger))
	if u.Limit.Per%time.Second == 0 {
		p.Add("w", int64(u.Limit.Per/time.Second))
	}
}

// usageParams adds the state of a limit: r, the remaining units, and t, the seconds that another
// request like this one would have to wait. It omits t if there is no wait.
func usageParams(p *httpsfv.Params, u window.Usage) {
	p.Add("r", min(u.Remaining, maxInteger))
	if u.RetryAfter > 0 {
		p.Add("t", ceilSeconds(u.RetryAfter))
	}
}

// maxInteger is the largest integer of a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

// longestWait returns the longest t, in seconds, among the limits in the RateLimit fields of h.
// With ifSpent, it ignores limits that have units left. A middleware reads the fields that outer
// middleware has written, because that has already counted the request, and can require a longer
// wait.
func longestWait(h http.Header, ifSpent bool) (longest int64, found bool) {
	values := h[usageField]
	if len(values) == 0 {
		return 0, false
	}
	members, _ := httpsfv.UnmarshalList(values) // other code may have written anything here
	for _, m := range members {
		item, ok := m.(httpsfv.Item)
		if !ok {
			continue
		}
		r, _ := item.Params.Get("r")
		t, _ := item.Params.Get("t")
		if wait, ok := t.(int64); ok && wait >= 0 && (!ifSpent || r == int64(0)) {
			longest, found = max(longest, wait), true
		}
	}
	return longest, found
}

// ceilSeconds returns d in whole seconds, rounded up.
func ceilSeconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
