package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// waitIn returns how long a response with the headers h asks the client to wait, or 0. The first
// field that specifies a wait wins. Times are relative to the Date header if there is one, and to
// now otherwise.
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

// retryAfter parses Retry-After, which is a number of seconds or a date.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	text := h.Get("Retry-After")
	if n, ok := number(text); ok {
		return seconds(n), true
	}
	at, err := http.ParseTime(text)
	return at.Sub(now), err == nil
}

// usageWait parses RateLimit and returns the longest t among the limits that have nothing left. It
// ignores the other limits, because in some versions of the draft they have a t too.
func usageWait(h http.Header, _ time.Time) (time.Duration, bool) {
	wait, found := longestWait(h, true)
	return seconds(float64(wait)), found
}

// legacyWait parses X-RateLimit-Reset, unless X-RateLimit-Remaining is above 0. Servers send
// seconds from now, seconds or milliseconds since 1970, or a date.
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

// date parses a time in the format of HTTP or RFC 3339.
func date(text string) (time.Time, error) {
	if at, err := http.ParseTime(text); err == nil {
		return at, nil
	}
	return time.Parse(time.RFC3339, text)
}

// number parses a finite, non-negative number.
func number(text string) (float64, bool) {
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && n >= 0 && !math.IsInf(n, 1)
}

// seconds returns n seconds as a duration of at most a day.
func seconds(n float64) time.Duration {
	const day = 24 * 60 * 60
	return time.Duration(min(n, day) * float64(time.Second))
}
