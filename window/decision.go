package window

import "time"

// Decision is the answer to one attempt.
type Decision struct {
	Allowed bool // the attempt may happen

	// RetryAfter is how soon the same request could be admitted: the longest over the limits; 0 if
	// Allowed. Under 1/5s, an attempt 2 s after an admitted one has a RetryAfter of 3 s: at 2999 ms
	// it would still be denied.
	RetryAfter time.Duration

	Granted   int64 // units that may happen: all or none, except after AllowUpTo or Charge
	Remaining int64 // units still admissible after this decision, under the tightest limit
	Counted   int64 // units that this call counted: those granted, or all if denials count; 0 for a peek

	// At is when, on the deciding clock, in UTC. While that clock reads earlier than the newest
	// bucket, because it stepped back, it is the time of that bucket; if limits then differ, of the
	// earliest.
	At time.Time

	// Degraded says that the Fallback decided, by its own limits and its own clock. Redis may or
	// may not have counted the attempt too.
	Degraded bool

	Usage []Usage // one per limit, in the order of Config.Limits; of those of the Fallback if Degraded
}

// Usage is how much of one limit is used, after the decision.
type Usage struct {
	Limit      Limit         // as in Config.Limits
	Used       int64         // units counted; above Max where denials count, or where Max was lowered
	Remaining  int64         // units still admissible, never below 0
	RetryAfter time.Duration // until this limit alone would admit the same request once more; 0 if at once
	ResetAfter time.Duration // until this limit is as if never used
}

// Result is what AllowEach answers about one event: a Decision, or why there is none.
type Result struct {
	Decision       // the zero Decision with an Err
	Err      error // as of AllowN; nil with a Decision
}

// Snapshot is the state of one event, for people.
type Snapshot struct {
	Event  string       // as it was asked for
	Key    string       // the key in Redis
	At     time.Time    // as in Decision
	Limits []LimitState // in the order of Config.Limits

	// Others are the windows that callers with other limits count for the event, in order of Per.
	// One that is forgotten can still be listed, with Used 0. A record does not say how much a
	// limit holds, so only the Per of their Limit is known, and Remaining and RetryAfter are 0.
	Others []LimitState
}

// LimitState is the state of one limit of one event.
type LimitState struct {
	Usage
	Buckets []Bucket // oldest first
}

// Bucket is a slice of time in a window; it is forgotten when Last is Per old.
type Bucket struct {
	Last  time.Time // its last event
	Units int64     // what it counts
}

// Tightest is the usage of the limit that asks for the longest wait; if Allowed, of the one with
// the least remaining. Of equals it is the first.
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
