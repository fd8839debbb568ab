package window

import "time"

// Decision is the answer to one attempt.
type Decision struct {
	Allowed bool // whether the attempt may happen

	// RetryAfter is how soon the same request could be admitted: the longest wait of all limits; 0
	// if Allowed. Example: under 1/5s, an attempt 2 s after an admitted one has a RetryAfter of 3
	// s. At 2999 ms it would still be denied.
	RetryAfter time.Duration

	Granted   int64 // units that may happen: all or none, except after AllowUpTo or Charge
	Remaining int64 // units that can still be admitted after this decision, under the tightest limit
	Counted   int64 // units that this call counted: those granted, or all if denials count; 0 for a peek

	// At is the time of the decision, in UTC, on the clock that decided. If that clock stepped back
	// and reads earlier than the newest bucket, At is the time of that bucket. If the limits then
	// differ, it is the earliest of their times.
	At time.Time

	// Degraded reports whether the Fallback decided, by its own limits and its own clock. Redis may
	// or may not have counted the attempt too.
	Degraded bool

	// Cause is why Redis did not answer, and what to do about it, if Degraded; otherwise it is nil.
	// Like Observation.Err, it holds no event. ReasonOf returns its Reason.
	Cause error `json:"-"`

	// Override is what an override did with the attempt; "" if none did. Of OverrideLimits, Usage has
	// its limits. Of the others, nothing was counted, and Usage says that all of each limit is free, or
	// none, until the override ends.
	Override OverrideMode

	Usage []Usage // one per limit, in the order of Config.Limits; if Degraded, per limit of the Fallback
}

// takeBack changes an allowed decision about n units to what holds once these are not counted.
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
	Used       int64         // units counted; above Max where denials count, or where Max was lowered
	Remaining  int64         // units that can still be admitted, never below 0
	RetryAfter time.Duration // until this limit alone would admit the same request again; 0 if now
	ResetAfter time.Duration // until this limit is as if never used
}

// Result is the answer of AllowEach or PeekEach about one event: a Decision, or an error.
type Result struct {
	Decision       // the zero Decision if there is an Err
	Err      error // as from AllowN or PeekN; nil if there is a Decision
}

// Snapshot is the state of one event, for people.
type Snapshot struct {
	Event  string       // as the caller named it
	Key    string       // the key in Redis
	At     time.Time    // as in Decision
	Limits []LimitState // in the order of Config.Limits

	// Others are the windows that callers with other limits count for the event, in order of Per.
	// One that is forgotten can still be listed, with Used 0. A record does not hold the Max of a
	// limit. So only the Per of their Limit is known, and Remaining and RetryAfter are 0.
	Others []LimitState
}

// LimitState is the state of one limit of one event.
type LimitState struct {
	Usage
	Buckets []Bucket // oldest first
}

// Bucket is a slice of time in a window. It is forgotten when Last is Per old.
type Bucket struct {
	Last  time.Time // its last event
	Units int64     // units that it counts
}

// Tightest returns the usage of the limit that denies for the longest. If Allowed, it returns that
// of the limit with the fewest units remaining. Of equals it returns the first.
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
