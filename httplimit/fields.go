package httplimit

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"

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

// setFields writes the limits, what is left, and after a denial the wait. It adds to the fields of
// middlewares around this one. In Shadow it writes nothing, because the client is not limited.
func (m *Middleware) setFields(h http.Header, d window.Decision) {
	if m.cfg.Shadow {
		return
	}
	wait := outerRetryAfter(h)
	if len(d.Usage) > 0 {
		h.Add(policyField, m.policyValue(d.Usage))
		h.Add(usageField, listField(d.Usage, usageItem))
		if m.cfg.LegacyHeaders {
			setLegacy(h, limitingUsage(d), time.Now())
		}
	}
	if !d.Allowed {
		h.Set("Retry-After", strconv.FormatInt(max(ceilSeconds(d.RetryAfter), wait), 10))
	}
}

// setLegacy writes the X-RateLimit headers about one limit. They have no form for several.
func setLegacy(h http.Header, u window.Usage, now time.Time) {
	reset := now.Add(u.RetryAfter)
	h.Set(legacyLimit, strconv.FormatInt(u.Limit.Max, 10))
	h.Set(legacyRemaining, strconv.FormatInt(u.Remaining, 10))
	h.Set(legacyReset, strconv.FormatInt(reset.Add(time.Second-1).Unix(), 10))
}

// limitingUsage returns the usage of the limit with the longest wait for another such request. If
// there is no wait, it returns the one with the least remaining.
func limitingUsage(d window.Decision) window.Usage {
	d.Allowed = false
	if waits := d.Tightest(); waits.RetryAfter > 0 {
		return waits
	}
	d.Allowed = true
	return d.Tightest()
}

// policyText is the value of RateLimit-Policy for the limits of some usage.
type policyText struct {
	of   []window.Usage
	text string
}

// policyValue returns the value of RateLimit-Policy. It caches the last one. The limits change only
// with a Fallback that has its own, or a Limiter that chooses.
func (m *Middleware) policyValue(of []window.Usage) string {
	sameLimit := func(a, b window.Usage) bool { return a.Limit == b.Limit }
	if last := m.policy.Load(); last != nil && slices.EqualFunc(last.of, of, sameLimit) {
		return last.text
	}
	text := listField(of, func(u window.Usage) httpsfv.Item { return policyItem(u.Limit) })
	m.policy.Store(&policyText{slices.Clone(of), text})
	return text
}

// listField returns a list with an item for each limit. Marshal cannot fail on these items.
func listField(of []window.Usage, item func(window.Usage) httpsfv.Item) string {
	items := make(httpsfv.List, len(of))
	for i, u := range of {
		items[i] = item(u)
	}
	text, _ := httpsfv.Marshal(items)
	return text
}

// policyItem returns a limit: q units, and a window of w seconds if these are whole.
func policyItem(l window.Limit) httpsfv.Item {
	item := httpsfv.NewItem(l.Label())
	item.Params.Add("q", min(l.Max, maxInteger))
	if l.Per%time.Second == 0 {
		item.Params.Add("w", int64(l.Per/time.Second))
	}
	return item
}

// usageItem returns what is left of a limit: r units, and t seconds if a request like this one has
// to wait.
func usageItem(u window.Usage) httpsfv.Item {
	item := httpsfv.NewItem(u.Limit.Label())
	item.Params.Add("r", min(u.Remaining, maxInteger))
	if u.RetryAfter > 0 {
		item.Params.Add("t", ceilSeconds(u.RetryAfter))
	}
	return item
}

// maxInteger is the largest integer of a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

// outerRetryAfter returns the longest wait in the fields of the middlewares around this one. They
// have already counted the request, and can need a longer wait than this one.
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
