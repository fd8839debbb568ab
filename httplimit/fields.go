package httplimit

import (
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/slidegate/slidegate/internal/constant"
	"github.com/slidegate/slidegate/window"
)

// The RateLimit header fields, as net/http writes their names.
const (
	policyField = "Ratelimit-Policy"
	usageField  = "Ratelimit"
)

// The headers from before the draft, as net/http writes their names.
const (
	legacyLimit     = "X-Ratelimit-Limit"
	legacyRemaining = "X-Ratelimit-Remaining"
	legacyReset     = "X-Ratelimit-Reset"
)

// setFields writes the limits, the remaining units and, after a denial, the wait. It adds to the
// fields of middlewares around this one. In Shadow it writes nothing, because the client is not
// limited.
func (m *Middleware) setFields(h http.Header, v verdict) {
	if m.cfg.Shadow {
		return
	}
	wait := outerRetryAfter(h)
	if len(v.Usage) > 0 {
		p := m.policyOf(v)
		h.Add(policyField, p.text)
		h.Add(usageField, listField(v.Usage, p.names, usageParams))
		if m.cfg.LegacyHeaders {
			setLegacy(h, limitingUsage(v.Decision), time.Now())
		}
	}
	if !v.Allowed && !constant.Denies(v.Decision) {
		h.Set("Retry-After", strconv.FormatInt(max(ceilSeconds(v.RetryAfter), wait), 10))
	}
}

// setLegacy writes the X-RateLimit headers for one limit, because they cannot express several.
func setLegacy(h http.Header, u window.Usage, now time.Time) {
	reset := now.Add(u.RetryAfter)
	h.Set(legacyLimit, strconv.FormatInt(u.Limit.Max, 10))
	h.Set(legacyRemaining, strconv.FormatInt(u.Remaining, 10))
	h.Set(legacyReset, strconv.FormatInt(reset.Add(time.Second-1).Unix(), 10))
}

// limitingUsage returns the usage of the limit with the longest wait for another request like this
// one. If there is no wait, it returns the one with the least remaining.
func limitingUsage(d window.Decision) window.Usage {
	d.Allowed = false
	if waits := d.Tightest(); waits.RetryAfter > 0 {
		return waits
	}
	d.Allowed = true
	return d.Tightest()
}

// policy holds the names of the limits of a verdict, and the value of RateLimit-Policy for them.
type policy struct {
	of    verdict
	names []string
	text  string
}

// policies caches policies. Plans, Checks, or a Fallback with its own limits lead to several.
type policies [64]atomic.Pointer[policy]

// slot returns where the policy of a verdict is cached, by a hash of its limits.
func (p *policies) slot(v *verdict) *atomic.Pointer[policy] {
	const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio spreads numbers over the high bits
	var hash uint64
	for _, u := range v.Usage {
		hash = (hash + uint64(u.Limit.Max) + uint64(u.Limit.Per)) * golden
	}
	return &p[hash>>58]
}

// policyOf returns the policy of a verdict.
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

// listField returns a list with a named item for each limit. Marshal cannot fail on these items.
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

// policyParams adds the limit: q units and, if it is a whole number of seconds, a window w.
func policyParams(p *httpsfv.Params, u window.Usage) {
	p.Add("q", min(u.Limit.Max, maxInteger))
	if u.Limit.Per%time.Second == 0 {
		p.Add("w", int64(u.Limit.Per/time.Second))
	}
}

// usageParams adds the state of a limit: r remaining units, and t seconds if a request like this
// one has to wait.
func usageParams(p *httpsfv.Params, u window.Usage) {
	p.Add("r", min(u.Remaining, maxInteger))
	if u.RetryAfter > 0 {
		p.Add("t", ceilSeconds(u.RetryAfter))
	}
}

// maxInteger is the largest integer of a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

// outerRetryAfter returns the longest wait in the fields of the middlewares around this one. Those
// have already counted the request, and can require a longer wait than this one.
func outerRetryAfter(h http.Header) (longest int64) {
	values := h[usageField]
	if len(values) == 0 {
		return 0
	}
	members, _ := httpsfv.UnmarshalList(values) // other code may have written anything here
	for _, m := range members {
		if item, ok := m.(httpsfv.Item); ok {
			t, _ := item.Params.Get("t")
			wait, _ := t.(int64)
			longest = max(longest, wait)
		}
	}
	return longest
}

// ceilSeconds returns d in whole seconds, rounded up.
func ceilSeconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
