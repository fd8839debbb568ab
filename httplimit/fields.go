package httplimit

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/slidegate/slidegate/window"
)

// The fields of the draft, as net/http writes their names.
const (
	policyField = "Ratelimit-Policy"
	usageField  = "Ratelimit"
)

// The headers that came before the draft, as net/http writes their names.
const (
	legacyLimit     = "X-Ratelimit-Limit"
	legacyRemaining = "X-Ratelimit-Remaining"
	legacyReset     = "X-Ratelimit-Reset"
)

// setFields writes a client's limits beside those of middlewares around this one: what they are, what is left, and after a denial, when to
// come back. In Shadow it writes nothing, because the client is not limited.
func (m *Middleware) setFields(h http.Header, d window.Decision) {
	if m.cfg.Shadow {
		return
	}
	wait := outerWait(h)
	if len(d.Usage) > 0 {
		h.Add(policyField, m.policies(d.Usage))
		h.Add(usageField, list(d.Usage, usage))
		if m.cfg.LegacyHeaders {
			setLegacy(h, hardest(d), time.Now())
		}
	}
	if !d.Allowed {
		h.Set("Retry-After", strconv.FormatInt(max(seconds(d.RetryAfter), wait), 10))
	}
}

// setLegacy writes the headers of old about one limit. They have no form for several.
func setLegacy(h http.Header, u window.Usage, now time.Time) {
	reset := now.Add(u.RetryAfter)
	h.Set(legacyLimit, strconv.FormatInt(u.Limit.Max, 10))
	h.Set(legacyRemaining, strconv.FormatInt(u.Remaining, 10))
	h.Set(legacyReset, strconv.FormatInt(reset.Add(time.Second-1).Unix(), 10))
}

// hardest returns the usage of the limit with the longest wait for another such request, or if there is no wait, with the least remaining.
func hardest(d window.Decision) window.Usage {
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

// policies are always the same, but for a Fallback with limits of its own, or a Limiter that chooses.
func (m *Middleware) policies(of []window.Usage) string {
	sameLimit := func(a, b window.Usage) bool { return a.Limit == b.Limit }
	if last := m.policy.Load(); last != nil && slices.EqualFunc(last.of, of, sameLimit) {
		return last.text
	}
	text := list(of, func(u window.Usage) httpsfv.Item { return policy(u.Limit) })
	m.policy.Store(&policyText{slices.Clone(of), text})
	return text
}

// list writes an item for each limit. What is in them can always be written.
func list(of []window.Usage, item func(window.Usage) httpsfv.Item) string {
	items := make(httpsfv.List, len(of))
	for i, u := range of {
		items[i] = item(u)
	}
	text, _ := httpsfv.Marshal(items)
	return text
}

// policy is a limit: q units, and w seconds of a window that has whole ones.
func policy(l window.Limit) httpsfv.Item {
	item := httpsfv.NewItem(l.String())
	item.Params.Add("q", min(l.Max, mostInteger))
	if l.Per%time.Second == 0 {
		item.Params.Add("w", int64(l.Per/time.Second))
	}
	return item
}

// usage is what is left of a limit: r units, and where a request like this one has to wait, t seconds.
func usage(u window.Usage) httpsfv.Item {
	item := httpsfv.NewItem(u.Limit.String())
	item.Params.Add("r", min(u.Remaining, mostInteger))
	if u.RetryAfter > 0 {
		item.Params.Add("t", seconds(u.RetryAfter))
	}
	return item
}

// mostInteger is the largest integer of a structured field (RFC 9651, 3.3.1).
const mostInteger = 999_999_999_999_999

// outerWait returns the longest wait in the headers of the middlewares around this one. They have counted the request already, and can ask for
// a longer wait than this one.
func outerWait(h http.Header) (longest int64) {
	values := h[usageField]
	if len(values) == 0 {
		return 0
	}
	members, _ := httpsfv.UnmarshalList(values) // where somebody else wrote the field, it can be anything
	for _, m := range members {
		if item, ok := m.(httpsfv.Item); ok {
			t, _ := item.Params.Get("t")
			wait, _ := t.(int64)
			longest = max(longest, wait)
		}
	}
	return longest
}

// seconds are whole ones, never too few.
func seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
