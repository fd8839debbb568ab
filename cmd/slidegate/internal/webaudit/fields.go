package webaudit

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/slidegate/slidegate/audit"
	"github.com/slidegate/slidegate/window"
)

// promises holds what the header fields of a response promise.
type promises struct {
	remaining  int64 // how many attempts are left; -1 if the field is absent or does not cover all limits
	wait       int64 // seconds; -1 if absent
	retryAfter int64 // seconds; -1 if absent
	wrong      []string
}

// observation represents a request and its response.
type observation struct {
	began, ended int // positions in the sequence of all sends and responses
	denied       bool
	unknown      bool
	promises
}

// read parses the header fields of a response. If they announce limits other than the claims, it
// records a fault.
func read(h http.Header, claims []window.Limit) promises {
	t := promises{remaining: -1, wait: -1, retryAfter: -1}
	if n, err := strconv.ParseInt(strings.TrimSpace(h.Get("Retry-After")), 10, 64); err == nil {
		t.retryAfter = n
	}
	t.readPolicy(h, claims)
	t.readUsage(h, claims)
	t.readLegacy(h, claims)
	return t
}

// readPolicy compares RateLimit-Policy with the claims.
func (t *promises) readPolicy(h http.Header, claims []window.Limit) {
	for _, item := range t.items(h, "RateLimit-Policy") {
		quota, hasQuota := parameter(item, "q")
		seconds, hasWindow := parameter(item, "w")
		if !hasQuota || !hasWindow {
			continue
		}
		for _, l := range claims {
			if l.Per == time.Duration(seconds)*time.Second && l.Max != quota {
				t.fault("RateLimit-Policy announces %d in %d s, but %d are claimed", quota, seconds, l.Max)
			}
		}
	}
}

// readUsage parses RateLimit. It sets remaining only if the field has an item for each claim.
func (t *promises) readUsage(h http.Header, claims []window.Limit) {
	items := t.items(h, "RateLimit")
	for _, item := range items {
		left, ok := parameter(item, "r")
		if ok && len(items) == len(claims) && (t.remaining < 0 || left < t.remaining) {
			t.remaining = left
		}
		if wait, hasWait := parameter(item, "t"); hasWait && ok && left == 0 {
			t.wait = max(t.wait, wait)
		}
	}
}

// readLegacy parses X-RateLimit-Limit and X-RateLimit-Remaining, or the same fields without X-,
// which come from older drafts. They describe a single limit.
func (t *promises) readLegacy(h http.Header, claims []window.Limit) {
	for _, prefix := range []string{"X-RateLimit-", "RateLimit-"} {
		limit, err := strconv.ParseInt(first(h.Get(prefix+"Limit")), 10, 64)
		if len(claims) > 1 {
			return // the fields do not say which limit they describe
		}
		if err == nil && limit != claims[0].Max {
			t.fault("%sLimit announces %d, but %d are claimed", prefix, limit, claims[0].Max)
		}
		if left, err := strconv.ParseInt(first(h.Get(prefix+"Remaining")), 10, 64); err == nil {
			t.remaining = max(t.remaining, left) // the stronger promise
		}
	}
}

// first returns the text before the first comma or semicolon, because some services append more.
func first(value string) string {
	value, _, _ = strings.Cut(value, ",")
	value, _, _ = strings.Cut(value, ";")
	return strings.TrimSpace(value)
}

// items returns the items of a structured field. It skips members in an older draft's format.
func (t *promises) items(h http.Header, name string) (items []httpsfv.Item) {
	values := h.Values(name)
	if len(values) == 0 {
		return nil
	}
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		t.fault("%s is not a structured field: %q", name, strings.Join(values, ", "))
	}
	for _, member := range list {
		if item, ok := member.(httpsfv.Item); ok {
			items = append(items, item)
		}
	}
	return items
}

func parameter(item httpsfv.Item, name string) (int64, bool) {
	v, _ := item.Params.Get(name)
	n, ok := v.(int64)
	return n, ok
}

func (t *promises) fault(format string, args ...any) {
	t.wrong = append(t.wrong, fmt.Sprintf(format, args...))
}

// checkFields compares the header fields of all responses with the outcomes of later attempts.
//
// A remaining of r promises that r more attempts will be allowed, because with time units only come
// back. The promise is broken if a later attempt is denied although fewer than r attempts can have
// been allowed before it. Those attempts are the ones whose responses arrived after the request
// with the promise was sent. Separate budgets make separate promises, so the check requires a
// single budget.
func checkFields(all []observation, oneBudget bool) []audit.Finding {
	var faults []string
	for i, s := range all {
		for _, f := range slices.Concat(s.wrong, s.faults(all, i, oneBudget)) {
			if !slices.Contains(faults, f) {
				faults = append(faults, f)
			}
		}
	}
	if len(faults) == 0 {
		return nil
	}
	if more := len(faults) - 3; more > 0 {
		faults = append(faults[:3], fmt.Sprintf("and %d more", more))
	}
	return []audit.Finding{{
		Kind: Fields, Title: "Header fields are wrong",
		Seen:   strings.Join(faults, "; ") + ".",
		Means:  "Clients that rely on the fields send too much or too little.",
		Repair: "Write the fields from the decision itself, for all limits or for the one that denies first.",
	}}
}

// faults returns the faults of response i that the response itself or a later one proves.
func (s observation) faults(all []observation, i int, oneBudget bool) (faults []string) {
	if s.denied && s.remaining > 0 {
		faults = append(faults, fmt.Sprintf("a denied request announced that %d remain", s.remaining))
	} else if oneBudget && !s.unknown && s.remaining > 0 && remainingBroken(all, i) {
		faults = append(faults, "a request was denied although an earlier answer announced that more remain")
	}
	if s.denied && s.wait > s.retryAfter && s.retryAfter >= 0 {
		faults = append(faults, fmt.Sprintf("Retry-After was %d, shorter than the %d s in RateLimit", s.retryAfter, s.wait))
	}
	if s.denied && s.retryAfter == 0 && i+1 < len(all) && all[i+1].denied && consecutive(s, all[i+1]) {
		faults = append(faults, "Retry-After was 0, and the very next request was denied")
	}
	return faults
}

// consecutive reports whether no other request was in progress between the start of s and the end
// of next.
func consecutive(s, next observation) bool { return next.ended-s.began == 3 }

// remainingBroken reports whether the remaining promised by response i was broken.
func remainingBroken(all []observation, i int) bool {
	used := int64(0)
	for j, s := range all {
		if j == i || s.ended < all[i].began {
			continue
		}
		if s.denied && s.began > all[i].ended {
			return used+overlapping(all, i, j) < all[i].remaining
		}
		if !s.denied {
			used++
		}
	}
	return false
}

// overlapping returns the number of attempts after j that may have been decided before j.
func overlapping(all []observation, i, j int) (n int64) {
	for k := j + 1; k < len(all) && all[k].began < all[j].ended; k++ {
		if k != i && !all[k].denied {
			n++
		}
	}
	return n
}
