package loginhttp

import (
	"fmt"
	"net/http"
	"time"
)

// Outcome is what a request came to that did not log in.
type Outcome string

// The outcomes. None depends on whether the account exists.
const (
	Asked       Outcome = "asked"       // a GET: show the form. 200
	Wrong       Outcome = "wrong"       // the account or the password is wrong. 403
	Denied      Outcome = "denied"      // too many attempts; nobody looked at the password. 429
	Unavailable Outcome = "unavailable" // Redis, the store of users or another part gave no answer. 503
	Invalid     Outcome = "invalid"     // the request is none to log in: 400, 403 (from another site), 405, 413 or 415
)

// Result is what a page shows instead of a login.
type Result struct {
	Status     int           // the status to write
	Outcome    Outcome       // what happened
	Message    string        // the same in English, for the user; empty if Asked
	Account    string        // what was typed as the account, to fill in the form again; escape it
	RetryAfter time.Duration // how soon an attempt could be allowed, if Denied or Unavailable, or if Wrong and none is left; else 0
	Challenge  bool          // Denied, but allowed if the client solves a challenge
	Left       int64         // if Wrong: how many more failures are allowed now
}

// Wait returns RetryAfter in words, rounded up: "45 seconds", "1 minute", "3 hours", "2 days".
func (r Result) Wait() string { return inWords(r.RetryAfter) }

func inWords(d time.Duration) string {
	for _, u := range []struct {
		name string
		span time.Duration
		most time.Duration
	}{{"second", time.Second, 60}, {"minute", time.Minute, 60}, {"hour", time.Hour, 48}} {
		if n := ceil(d, u.span); n < u.most {
			return several(n, u.name)
		}
	}
	return several(ceil(d, 24*time.Hour), "day")
}

// ceil returns how many units d has, rounded up.
func ceil(d, unit time.Duration) time.Duration { return (d + unit - 1) / unit }

func several(n time.Duration, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", int64(n), unit)
}

func wrong(left int64, next time.Duration) *Result {
	r := &Result{Status: http.StatusForbidden, Outcome: Wrong, Message: "Account or password is wrong.", Left: left, RetryAfter: next}
	if next > 0 {
		r.Message += " Try again in " + inWords(next) + ", or reset your password."
	}
	return r
}

func denied(wait time.Duration, challenge bool) *Result {
	return &Result{
		Status: http.StatusTooManyRequests, Outcome: Denied, RetryAfter: wait, Challenge: challenge,
		Message: "Too many attempts. Try again in " + inWords(wait) + ", or reset your password.",
	}
}

func unavailable() *Result {
	return &Result{
		Status: http.StatusServiceUnavailable, Outcome: Unavailable, RetryAfter: time.Second, // the guard probes Redis once a second
		Message: "Nobody can log in at the moment. Try again soon.",
	}
}

func invalid(status int, message string) *Result {
	return &Result{Status: status, Outcome: Invalid, Message: message}
}
