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

// promises are what the header fields of one answer say.
type promises struct {
	remaining  int64 // attempts that are left; -1: not said, or not of all limits
	wait       int64 // seconds; -1: not said
	retryAfter int64 // seconds; -1: not said
	wrong      []string
}

// A seen is an answer, in the order of sending.
type seen struct {
	began, ended int // numbers in the order of all such events
	denied       bool
	unknown      bool
	promises
}

// read reads the fields of an answer. What they announce must be the claims.
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
				t.fault("RateLimit-Policy announces %d in %d s, and %d are claimed", quota, seconds, l.Max)
			}
		}
	}
}

// readUsage reads RateLimit. It knows what remains if there is an item for each claim.
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

// readLegacy reads X-RateLimit-Limit and so on, and RateLimit-Limit and so on of older drafts. They are
// about one limit.
func (t *promises) readLegacy(h http.Header, claims []window.Limit) {
	for _, prefix := range []string{"X-RateLimit-", "RateLimit-"} {
		limit, err := strconv.ParseInt(first(h.Get(prefix+"Limit")), 10, 64)
		if len(claims) > 1 {
			return // nobody knows which one
		}
		if err == nil && limit != claims[0].Max {
			t.fault("%sLimit announces %d, and %d are claimed", prefix, limit, claims[0].Max)
		}
		if left, err := strconv.ParseInt(first(h.Get(prefix+"Remaining")), 10, 64); err == nil {
			t.remaining = max(t.remaining, left) // the promise that is harder to keep
		}
	}
}

// first returns the number before a comma or a semicolon, as some send more.
func first(value string) string {
	value, _, _ = strings.Cut(value, ",")
	value, _, _ = strings.Cut(value, ";")
	return strings.TrimSpace(value)
}

// items returns those of a structured field. One in the form of an older draft is left alone.
func (t *promises) items(h http.Header, name string) (items []httpsfv.Item) {
	values := h.Values(name)
	if len(values) == 0 {
		return nil
	}
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		t.fault("%s is no structured field: %q", name, strings.Join(values, ", "))
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

// judgeFields compares what all answers said with what became of the attempts after them.
//
// A remaining r promises that r more attempts are admitted: time only gives units back. It is wrong if
// a later attempt is denied, before which fewer than r attempts were admitted, or may have been, whose
// answer came after the promise was asked for. Several budgets make promises of their own, so this needs
// a single one.
func judgeFields(all []seen, oneBudget bool) []audit.Finding {
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
		Means:  "Clients that read the fields send too much or too little.",
		Repair: "Write the fields from the decision itself, of all limits or of the one that denies first.",
	}}
}

// faults returns what answer i says that is wrong, as it or a later one shows.
func (s seen) faults(all []seen, i int, oneBudget bool) (faults []string) {
	if s.denied && s.remaining > 0 {
		faults = append(faults, fmt.Sprintf("a denied request had the promise that %d remain", s.remaining))
	} else if oneBudget && !s.unknown && s.remaining > 0 && broken(all, i) {
		faults = append(faults, "a request was denied though an earlier answer had promised that more remain")
	}
	if s.denied && s.wait > s.retryAfter && s.retryAfter >= 0 {
		faults = append(faults, fmt.Sprintf("Retry-After was %d, before the %d s that RateLimit asked to wait", s.retryAfter, s.wait))
	}
	if s.denied && s.retryAfter == 0 && i+1 < len(all) && all[i+1].denied && apart(s, all[i+1]) {
		faults = append(faults, "Retry-After was 0, and the very next request was denied")
	}
	return faults
}

// apart reports whether nothing else was under way from the begin of one answer to the end of the next.
func apart(s, next seen) bool { return next.ended-s.began == 3 }

// broken reports whether what remains after answer i was not kept.
func broken(all []seen, i int) bool {
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

// overlapping counts the attempts after j that may have been decided before it.
func overlapping(all []seen, i, j int) (n int64) {
	for k := j + 1; k < len(all) && all[k].began < all[j].ended; k++ {
		if k != i && !all[k].denied {
			n++
		}
	}
	return n
}
