// Package audit tests whether a rate limiter keeps the limits that it claims. It attacks any
// function that allows or denies attempts, judges the answers, and reports each fault and how to
// fix it.
//
//	func TestLimiter(t *testing.T) {
//		limiter := newLimiter()
//		audit.Check(t, "20/1s", func(ctx context.Context) (bool, time.Duration, error) {
//			d, err := limiter.Allow(ctx, "alice")
//			return d.Allowed, d.RetryAfter, err
//		})
//	}
//
// The rate limiter can use any algorithm and come from any library: a sliding window, a fixed
// window, a token bucket or GCRA; in memory, or distributed with Redis or Redis Cluster. All
// attempts must use the same event key, and nobody else may use that key during the audit.
//
// # Time
//
// By default, an audit runs in real time. If the limiter accepts a clock, give it a Clock: then
// CheckClock takes only milliseconds, even for long windows. If the limiter uses package time, call
// Check in a testing/synctest bubble, where waiting takes no real time either.
//
// # Proof
//
// Every finding is proven: no limiter that keeps the claims can give such answers, whatever the
// latency. The proof is in the comment on type evidence, in evidence.go. Report.NotTested lists
// what could not be tested in the given time. For how to read a report, and for audits of other
// rate limiting libraries, see https://github.com/slidegate/slidegate/blob/main/docs/audit.md.
package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/window"
)

// Func makes one attempt, always on the same event key. It returns whether the attempt was allowed.
// If the attempt was denied, Func also returns how long to wait, or 0 if the limiter does not
// report a wait. Func must be safe for concurrent use.
type Func func(ctx context.Context) (allowed bool, retryAfter time.Duration, err error)

// Config describes an audit. Claims and Attempt are required.
type Config struct {
	// Claims are the limits that the limiter claims to keep. No two of them may have the same Per.
	// The limiter may forget a unit up to Resolution late. A Resolution of 0 means a sixtieth of
	// Per.
	Claims []window.Limit

	// Attempt makes one attempt.
	Attempt Func

	// Clock is the limiter's clock, from NewClock. nil means real time.
	Clock *Clock

	// MaxTime and MaxAttempts bound the audit. Attacks that do not fit are omitted, and the report
	// lists them. 0 means one minute and 10,000 attempts. With a Clock, or in a testing/synctest
	// bubble, a MaxTime of 0 means no bound.
	MaxTime     time.Duration
	MaxAttempts int

	// WaitStep is the unit to which the limiter rounds waits up. 0 means a millisecond. For waits
	// from an HTTP Retry-After header, set it to a second.
	WaitStep time.Duration

	// Fresh means that nobody has used the budget before the audit. If Fresh is false, earlier
	// attempts can be the reason for a denial until the longest window has passed.
	Fresh bool
}

const (
	defaultTime     = time.Minute
	defaultAttempts = 10_000
	unbounded       = 1 << 62 // nanoseconds
)

// check sets default values, and returns an error if the configuration is invalid.
func (c *Config) check() error {
	if len(c.Claims) == 0 || c.Attempt == nil {
		return errors.New("slidegate: an audit needs Claims and Attempt")
	}
	seen := map[time.Duration]bool{}
	for _, l := range c.Claims {
		if _, err := window.ParseLimit(l.String()); err != nil {
			return fmt.Errorf("slidegate: claims: %w", err)
		}
		if seen[l.Per] {
			return fmt.Errorf("slidegate: two claims have a Per of %v; keep the tighter one", l.Per)
		}
		seen[l.Per] = true
	}
	if c.MaxTime == 0 {
		if c.MaxTime = defaultTime; c.Clock != nil || inBubble() {
			c.MaxTime = unbounded
		}
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = defaultAttempts
	}
	if c.WaitStep == 0 {
		c.WaitStep = time.Millisecond
	}
	return nil
}

// bounds formats MaxTime and MaxAttempts for messages.
func (c *Config) bounds() string {
	attempts := fmt.Sprintf("%d attempts", c.MaxAttempts)
	if c.MaxTime == unbounded {
		return attempts
	}
	return brief(c.MaxTime) + " and " + attempts
}

// ParseClaims parses a comma-separated list of limits, such as "1/5s,5/1m". Each limit has the
// format of window.ParseLimit.
func ParseClaims(text string) (claims []window.Limit, err error) {
	for part := range strings.SplitSeq(text, ",") {
		l, err := window.ParseLimit(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		claims = append(claims, l)
	}
	return claims, nil
}

// Check audits a limiter in real time, and reports each finding as a test error. Claims are, for
// example, "20/1s" or "1/1s,5/2s". The attempts must use a budget that nobody has used before. An
// audit takes about 20 times the longest window. If it would take more than a minute or more than
// 10,000 attempts, Check fails the test immediately. In this case, call Run, which omits the
// attacks that do not fit.
func Check(tb testing.TB, claims string, attempt Func) {
	tb.Helper()
	CheckClock(tb, nil, claims, attempt)
}

// CheckClock is like Check, but for a limiter that uses the given clock. It takes only
// milliseconds, whatever the claims.
func CheckClock(tb testing.TB, clock *Clock, claims string, attempt Func) {
	tb.Helper()
	limits, err := ParseClaims(claims)
	if err != nil {
		tb.Fatal(err)
	}
	cfg := Config{Claims: limits, Attempt: attempt, Clock: clock, Fresh: true}
	if plan, err := cfg.Plan(); err == nil && len(plan.NotTested) > 0 {
		tb.Fatalf("%s; claim shorter windows and fewer units, use a Clock or a testing/synctest bubble, or call Run, which leaves them out", plan.NotTested[0])
	}
	r, err := Run(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range r.Findings {
		tb.Errorf("%s\n%s", f.Title, f.text())
	}
	for _, left := range r.NotTested {
		tb.Log("not tested:", left)
	}
}
