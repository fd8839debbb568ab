package window

import "time"

// Decision is the answer to one attempt.
type Decision struct {
	Allowed bool // whether the attempt may proceed

	// RetryAfter is how soon the same request could be allowed: the longest wait of all limits, or
	// 0 if Allowed. Example: under 1/5s, an attempt 2 s after an allowed one has a RetryAfter of 3
	// s. If retried after 2999 ms, it would still be denied. If an override with limits ends
	// sooner, RetryAfter is the time until then, and the limiter's own limits decide on the retry.
	RetryAfter time.Duration

	Granted   int64 // units that may be used: all or none, except after AllowUpTo or Charge
	Remaining int64 // units that can still be allowed after this decision, under the tightest limit
	Counted   int64 // units that this call counted: the granted ones, or all if denied attempts count; 0 for a peek

	// At is the time of the decision, in UTC, on the clock that was used for it. If that clock
	// stepped back and is behind the newest bucket, At is the time of that bucket. If this differs
	// between limits, At is the earliest such time.
	At time.Time

	// Degraded reports whether the Fallback decided, using its own limits and its own clock. Redis
	// may or may not have counted the attempt as well.
	Degraded bool

	// Cause says why Redis did not answer, and what to do about it. It is nil unless Degraded. Like
	// Observation.Err, it contains no event. ReasonOf returns its Reason.
	Cause error `json:"-"`

	// Override is the mode of the override that applied to the attempt, or "" if none did. If it is
	// OverrideLimits, Usage covers the limits of the override. In the other modes, nothing was
	// counted, and Usage shows each limit as entirely free or as entirely used until the override
	// ends. The same applies to a request for more units than the Max of a limit of the override,
	// if the own limits could allow them: it is denied until the override ends.
	Override OverrideMode

	Usage []Usage // one per limit, in the order of Config.Limits; if Degraded, for the limits of the Fallback
}

// takeBack changes an allowed decision on n units so that it counts none of them. It leaves a
// denial unchanged.
func (d *Decision) takeBack(n int64) {
	if !d.Allowed {
		return
	}
	d.Counted = 0
	for i := range d.Usage {
		u := &d.Usage[i]
		u.Used, u.RetryAfter = u.Used-n, 0
		u.Remaining = max(0, u.Limit.Max-u.Used)
		if i == 0 || u.Remaining < d.Remaining {
			d.Remaining = u.Remaining
		}
	}
}

// Usage is how much of one limit is used, after the decision.
type Usage struct {
	Limit      Limit         // as in Config.Limits
	Used       int64         // units counted; can exceed Max after charges, if denied attempts count, or if Max was lowered
	Remaining  int64         // units that can still be allowed, never below 0
	RetryAfter time.Duration // until this limit alone would allow the same request again; 0 if now
	ResetAfter time.Duration // until this limit is as if never used, if nothing more is counted
}

// Snapshot is the full state of one event, for diagnosis.
type Snapshot struct {
	Key    string       // the key in Redis
	At     time.Time    // as in Decision
	Limits []LimitState // in the order of Config.Limits

	// Others are the windows of the event that belong to limits of other callers, in order of Per.
	// An expired window can still be listed, with Used 0. A record does not store the Max of a
	// limit, so only Limit.Per is known, and Remaining and RetryAfter are 0.
	Others []LimitState
}

// LimitState is the state of one limit of one event.
type LimitState struct {
	Usage
	Buckets []Bucket // oldest first
}

// Bucket is a slice of time in a window. It is forgotten as soon as Last is Per ago.
type Bucket struct {
	Last  time.Time // the time of its last event
	Units int64     // the units counted in it
}

// Tightest returns the usage of the limit with the longest RetryAfter or, if Allowed, of the limit
// with the fewest units remaining. Ties go to the first limit.
func (d Decision) Tightest() Usage {
	var tightest Usage
	for i, u := range d.Usage {
		tighter := u.RetryAfter > tightest.RetryAfter
		if d.Allowed {
			tighter = u.Remaining < tightest.Remaining
		}
		if i == 0 || tighter {
			tightest = u
		}
	}
	return tightest
}
