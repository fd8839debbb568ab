package audit

import (
	"cmp"
	"slices"
	"time"

	"github.com/slidegate/slidegate/window"
)

// Attempt represents an attempt and its answer. Times are relative to the start of the audit.
type Attempt struct {
	Attack     string // the name of the attack
	Sent       time.Duration
	Came       time.Duration // when the answer arrived
	Answer     Answer
	RetryAfter time.Duration // the wait that a denial reported; 0 if it reported none

	begun, ended int64 // positions of the start and the end among those of all attempts
}

// Answer is the outcome of an attempt.
type Answer string

// The possible answers. An attempt is AnswerUnknown if it returned an error: it may or may not have
// been counted.
const (
	AnswerAllowed Answer = "allowed"
	AnswerDenied  Answer = "denied"
	AnswerUnknown Answer = "unknown"
)

// evidence holds the log of an audit, in the order in which attempts were sent. Its methods derive
// what the log proves about the limiter.
//
// # What is known
//
// The limiter decides an attempt at some instant between Sent and Came, by a clock that we cannot
// see. Latency, a busy machine, and a pause on either side only widen that interval. We assume
// three things about the limiter's clock. Nobody sets it during the audit. It runs faster or slower
// than ours by at most drift. It counts in steps of at most step. Let u be the instant on our clock
// at which the limiter's clock first showed the time of the decision. Then
//
//	Sent − step ≤ u ≤ Came      (1)
//
// and an interval of length d on its clock takes between shorter(d) = d/(1+drift) and longer(d) =
// d/(1−drift) on ours.
//
// # More than Max (exceeds)
//
// Sort the u of all allowed attempts. If a limiter allows at most Max in Per, unit i+Max comes at
// least Per after unit i on the limiter's clock:
//
//	u[i+Max] ≥ u[i] + shorter(Per)      (2)
//
// We do not know which attempt is the i-th. But if a ≤ u ≤ b for each attempt, the same is true of
// the i-th smallest a, u and b, since at least i values of u are at most the i-th smallest b. So
// let s[i] be the i-th smallest Sent − step, and c[i] the i-th smallest Came. By (1) and (2), every
// limiter that keeps the limit has u[i] ≥ d[i], where
//
//	d[i] = max(s[i], d[i−Max] + shorter(Per))
//
// by induction on i. If d[i] > c[i] for some i, the limiter does not keep the limit. The test also
// accumulates small excesses: a limiter that forgets units 1% too early is found after a number of
// windows, even if each answer takes longer than that 1%. Omitting attempts from the log only makes
// d smaller, so a proof from part of the log is valid.
//
// # Denied without a reason (needless)
//
// Consider a denial that overlaps no other attempt. A unit can be a reason for the denial only if
// the unit was allowed, or may have been, and has not been forgotten yet. Then
//
//	Came of the unit > Sent of the denial − step − longer(Per + late)      (3)
//
// where late is how late the limiter may forget a unit. If there are fewer than Max such units, the
// denial has no reason. An attempt without an answer is treated as one that may have been allowed
// at any later time. Nobody used the event before the audit.
//
// # Waits
//
// A wait is too short if the very next attempt was sent at least longer(wait) + step after the
// denial arrived, and was denied nevertheless. Nothing was allowed in between, so no other attempt
// can have taken its place. Neither attempt may overlap any other attempt. A wait is too long if an
// attempt after the denial was allowed, and its answer arrived before Sent of the denial +
// shorter(wait) − step − waitStep. A wait is endless if it is longer than the window plus late.
type evidence struct {
	limit   window.Limit
	log     []Attempt
	allowed times
}

// The tolerances. NTP slews a clock by at most 1/2000.
const (
	drift    = 1e-3
	step     = time.Millisecond
	waitStep = time.Millisecond // the unit to which a limiter may round waits up
)

// newEvidence returns the evidence that log, the log of an audit under l, contains.
func newEvidence(l window.Limit, log []Attempt) *evidence {
	e := &evidence{limit: l, log: slices.Clone(log)}
	slices.SortFunc(e.log, func(a, b Attempt) int { return cmp.Compare(a.begun, b.begun) })
	e.allowed = allowedTimes(e.log, func(Attempt) bool { return true })
	return e
}

// times holds the Sent times and the Came times of a number of attempts, each sorted.
type times struct{ sent, came []time.Duration }

// allowedTimes returns the times of the allowed attempts for which keep returns true.
func allowedTimes(log []Attempt, keep func(Attempt) bool) (t times) {
	for _, a := range log {
		if a.Answer == AnswerAllowed && keep(a) {
			t.sent, t.came = append(t.sent, a.Sent), append(t.came, a.Came)
		}
	}
	slices.Sort(t.sent)
	slices.Sort(t.came)
	return t
}

func shorter(d time.Duration) time.Duration { return time.Duration(float64(d) / (1 + drift)) }
func longer(d time.Duration) time.Duration  { return time.Duration(float64(d) / (1 - drift)) }

// exceeds reports whether more than Max was certainly allowed in some window, that is, at whichever
// instant between Sent and Came each decision was made.
func (e *evidence) exceeds() bool {
	l := e.limit
	n, per := int(min(l.Max, int64(len(e.allowed.sent)))), shorter(l.Per)
	earliest := make([]time.Duration, len(e.allowed.sent))
	for i := range earliest {
		earliest[i] = e.allowed.sent[i] - step
		if i >= n {
			earliest[i] = max(earliest[i], earliest[i-n]+per)
		}
		if earliest[i] > e.allowed.came[i] {
			return true
		}
	}
	return false
}

// most returns the largest number of units that were certainly allowed within one window, an
// interval shorter than Per.
func (e *evidence) most() (most int) {
	per := shorter(e.limit.Per)
	for i, sent := range e.allowed.sent {
		end, _ := slices.BinarySearch(e.allowed.came, sent-step+per)
		most = max(most, end-i) // by the end of this window, end answers had arrived, and at most i of those attempts had been sent before it
	}
	if e.exceeds() {
		most = max(most, int(e.limit.Max)+1)
	}
	return most
}

// races reports whether more than Max was allowed only with concurrent attempts: sequential
// attempts used up Max but did not exceed it. If answers take too long for that, sequential
// attempts prove nothing.
func (e *evidence) races() bool {
	alone := *e
	alone.allowed = allowedTimes(e.log, func(a Attempt) bool { return a.Attack != parallel })
	return e.exceeds() && !alone.exceeds() && alone.most() >= int(e.limit.Max)
}

// late returns how late the limiter may forget a unit under l, because it may count in buckets.
func late(l window.Limit) time.Duration {
	return (l.Per/60 + time.Millisecond - 1).Truncate(time.Millisecond)
}

// alone reports whether attempt i overlaps no other attempt in the log.
func (e *evidence) alone(i int) bool {
	a := e.log[i]
	if i+1 < len(e.log) && e.log[i+1].begun < a.ended {
		return false
	}
	return !slices.ContainsFunc(e.log[:i], func(b Attempt) bool { return b.ended > a.begun })
}

// reason reports whether the limit can be the reason for the denial of attempt i, which overlaps no
// other attempt. If deniedCount is true, denied attempts count too.
func (e *evidence) reason(i int, deniedCount bool) bool {
	from, n := e.log[i].Sent-e.longest(), int64(0)
	for _, a := range e.log[:i] {
		if a.Answer == AnswerUnknown || a.Came > from && (a.Answer == AnswerAllowed || deniedCount) {
			n++
		}
	}
	return n >= e.limit.Max
}

// needless returns the indices of the denials for which the limit is no reason. unexplained lists
// those that have no reason even if denied attempts count.
func (e *evidence) needless() (needless, unexplained []int) {
	for i, a := range e.log {
		if a.Answer != AnswerDenied || !e.alone(i) || e.reason(i, false) {
			continue
		}
		needless = append(needless, i)
		if !e.reason(i, true) {
			unexplained = append(unexplained, i)
		}
	}
	return needless, unexplained
}

// waits describes how accurate the limiter's waits were. The slices contain indices of denials.
type waits struct {
	reported             int // how many denials came with a wait
	short, long, endless []int
	worst                time.Duration // the most by which a wait in long was too long
}

// waits judges the wait of every denial.
func (e *evidence) waits() (w waits) {
	for i, d := range e.log {
		if d.Answer == AnswerDenied && d.RetryAfter > 0 {
			w.reported++
			e.judgeWait(&w, i)
		}
	}
	return w
}

func (e *evidence) judgeWait(w *waits, i int) {
	d := e.log[i]
	if !e.alone(i) || slices.ContainsFunc(e.log[:i], func(a Attempt) bool { return a.Answer == AnswerUnknown }) {
		return
	}
	if i+1 < len(e.log) {
		if next := e.log[i+1]; next.Answer == AnswerDenied && e.alone(i+1) && next.Sent >= d.Came+longer(d.RetryAfter)+step {
			w.short = append(w.short, i)
		}
	}
	if by := e.tooLong(i); by > 0 {
		w.long = append(w.long, i)
		w.worst = max(w.worst, by)
	}
	if d.RetryAfter > e.longest()+waitStep {
		w.endless = append(w.endless, i)
	}
}

// tooLong returns by how much more than waitStep the wait of denial i was too long, judged by the
// next allowed attempt. If the result is not positive, nothing shows that the wait was too long.
func (e *evidence) tooLong(i int) time.Duration {
	d := e.log[i]
	for _, a := range e.log[i+1:] {
		if a.Answer == AnswerAllowed && a.Sent >= d.Came {
			return d.Sent + shorter(d.RetryAfter) - step - waitStep - a.Came
		}
	}
	return 0
}

// longest returns the longest time for which a unit can remain the reason for denials.
func (e *evidence) longest() time.Duration { return longer(e.limit.Per+late(e.limit)) + step }
