package loginhttp

import (
	"fmt"
	"net/http"
	"time"
)

// Outcome says why a request did not log in.
type Outcome string

// The outcomes. None depends on whether the account exists.
const (
	// OutcomeAsked means that a GET requested the form: 200.
	OutcomeAsked Outcome = "asked"

	// OutcomeWrong means that the account or the password is wrong: 403.
	OutcomeWrong Outcome = "wrong"

	// OutcomeDenied means that there were too many attempts, and the password was not checked: 429.
	OutcomeDenied Outcome = "denied"

	// OutcomeUnavailable means that Redis, the user database or another service did not answer:
	// 503.
	OutcomeUnavailable Outcome = "unavailable"

	// OutcomeInvalid means that the request is not a valid login: 400, 403 (sent from another
	// site), 405, 413 or 415.
	OutcomeInvalid Outcome = "invalid"
)

// Result is what a page shows to a user who is not logged in.
type Result struct {
	// Status is the status to write.
	Status int

	// Outcome says what happened.
	Outcome Outcome

	// Message says what happened in English, for the user. It is empty for a GET.
	Message string

	// Account is what the user typed as the account, to fill in the form again. Escape it.
	Account string

	// RetryAfter is how long it takes until an attempt could be allowed. It is set if Outcome is
	// OutcomeDenied or OutcomeUnavailable, or if it is OutcomeWrong and Remaining is 0. Otherwise
	// it is 0.
	RetryAfter time.Duration

	// Challenge reports whether the denied attempt would be allowed if the client solved a challenge.
	Challenge bool

	// Remaining is how many more failures are allowed now. It is set only after a wrong password.
	Remaining int64
}

// RetryAfterText returns RetryAfter in words, rounded up: "45 seconds", "1 minute", "3 hours", "2
// days".
func (r Result) RetryAfterText() string { return inWords(r.RetryAfter) }

// inWords returns a duration in words, rounded up.
func inWords(d time.Duration) string {
	for _, u := range []struct {
		name string
		span time.Duration
		most time.Duration
	}{{"second", time.Second, 60}, {"minute", time.Minute, 60}, {"hour", time.Hour, 48}} {
		if n := ceil(d, u.span); n < u.most {
			return plural(n, u.name)
		}
	}
	return plural(ceil(d, 24*time.Hour), "day")
}

// ceil returns d divided by unit, rounded up.
func ceil(d, unit time.Duration) time.Duration { return (d + unit - 1) / unit }

// plural returns n followed by the unit, which gets an s unless n is 1.
func plural(n time.Duration, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", int64(n), unit)
}

// wrong returns the Result for a wrong password.
func wrong(left int64, next time.Duration) *Result {
	r := &Result{Status: http.StatusForbidden, Outcome: OutcomeWrong, Message: "Account or password is wrong.", Remaining: left, RetryAfter: next}
	if next > 0 {
		r.Message += " Try again in " + inWords(next) + ", or reset your password."
	}
	return r
}

// denied returns the Result for a denied attempt.
func denied(wait time.Duration, challenge bool) *Result {
	return &Result{
		Status: http.StatusTooManyRequests, Outcome: OutcomeDenied, RetryAfter: wait, Challenge: challenge,
		Message: "Too many attempts. Try again in " + inWords(wait) + ", or reset your password.",
	}
}

// unavailable returns the Result for an outage.
func unavailable() *Result {
	return &Result{
		Status: http.StatusServiceUnavailable, Outcome: OutcomeUnavailable, RetryAfter: time.Second, // the guard probes Redis once a second
		Message: "Nobody can log in at the moment. Try again soon.",
	}
}

// invalid returns the Result for a request that is not a valid login.
func invalid(status int, message string) *Result {
	return &Result{Status: status, Outcome: OutcomeInvalid, Message: message}
}
