package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"
)

// waitIn returns how long a response tells its client to wait, or 0. The first field that names a time
// counts. Times are compared with the Date of the response if it has one, and with now otherwise.
func waitIn(h http.Header, now time.Time) time.Duration {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	for _, field := range []func(http.Header, time.Time) (time.Duration, bool){retryAfter, usageWait, legacyWait} {
		if wait, ok := field(h, now); ok {
			return wait
		}
	}
	return 0
}

// retryAfter reads Retry-After, in seconds or as a date.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	text := h.Get("Retry-After")
	if n, ok := number(text); ok {
		return seconds(n), true
	}
	at, err := http.ParseTime(text)
	return at.Sub(now), err == nil
}

// usageWait reads RateLimit: the longest t of limits of which nothing is left. Other limits have a t,
// too, in some versions of the draft.
func usageWait(h http.Header, _ time.Time) (longest time.Duration, found bool) {
	members, _ := httpsfv.UnmarshalList(h[usageField])
	for _, m := range members {
		item, ok := m.(httpsfv.Item)
		if !ok {
			continue
		}
		r, _ := item.Params.Get("r")
		t, _ := item.Params.Get("t")
		if wait, ok := t.(int64); ok && wait >= 0 && r == int64(0) {
			longest, found = max(longest, seconds(float64(wait))), true
		}
	}
	return longest, found
}

// legacyWait reads X-RateLimit-Reset, unless X-RateLimit-Remaining says that something is left. Servers
// send seconds from now, seconds or milliseconds since 1970, or a date.
func legacyWait(h http.Header, now time.Time) (time.Duration, bool) {
	if left := h.Get(legacyRemaining); left != "" {
		if n, err := strconv.ParseFloat(left, 64); err != nil || n > 0 {
			return 0, false
		}
	}
	text := h.Get(legacyReset)
	n, isNumber := number(text)
	const past, farSeconds, farMilliseconds = 1e8, 1e11, 1e14 // 1973 in seconds; the year 5138 in seconds and in milliseconds
	switch at, err := date(text); {
	case !isNumber:
		return at.Sub(now), err == nil
	case n < past:
		return seconds(n), true
	case n < farSeconds:
		return seconds(n - float64(now.UnixMilli())/1e3), true
	}
	return seconds((n - float64(now.UnixMilli())) / 1e3), n < farMilliseconds
}

// date reads a time as HTTP writes it, or as RFC 3339 does.
func date(text string) (time.Time, error) {
	if at, err := http.ParseTime(text); err == nil {
		return at, nil
	}
	return time.Parse(time.RFC3339, text)
}

// number reads a number that is not negative.
func number(text string) (float64, bool) {
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && n >= 0 && !math.IsInf(n, 1)
}

// seconds returns a time of n seconds, at most a day.
func seconds(n float64) time.Duration {
	const day = 24 * 60 * 60
	return time.Duration(min(n, day) * float64(time.Second))
}
