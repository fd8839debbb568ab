package audit

import (
	"cmp"
	"slices"
	"time"

	"github.com/slidegate/slidegate/window"
)

// Attempt represents an attempt and its answer. Times are relative to the start of the audit.
type Attempt struct {
	Attack     string        `json:"attack"` // the name of the attack, as in Report.Attacks
	Sent       time.Duration `json:"sent_ns"`
	Came       time.Duration `json:"came_ns"` // when the answer arrived
	Answer     Answer        `json:"answer"`
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"` // the wait that a denial reported; 0 if it reported none

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
// than ours by at most drift. It counts in steps of at most step. With a Clock, drift and step are
// 0. Let u be the instant on our clock at which the limiter's clock first showed the time of the
// decision. Then
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
//	Came of the unit > Sent of the denial − step − longer(Per + Resolution)      (3)
//
// If each claim has fewer than Max such units, the denial has no reason. An attempt without an
// answer is treated as one that may have been allowed at any later time. A window that starts
// before the audit proves nothing, unless the budget is Fresh.
//
// # Waits
//
// A wait is too short if the very next attempt was sent at least longer(wait) + step after the
// denial arrived, and was denied nevertheless. Nothing was allowed in between, so no other attempt
// can have taken its place. Neither attempt may overlap any other attempt. A wait is too long if an
// attempt after the denial was allowed, and its answer arrived before Sent of the denial +
// shorter(wait) − step − WaitStep. A wait is endless if it is longer than the longest window plus
// its Resolution.
type evidence struct {
	claims   []window.Limit
	log      []Attempt
	drift    float64
	step     time.Duration
	waitStep time.Duration
	fresh    bool

	allowed times
}

// The tolerances in real time. NTP slews a clock by at most 1/2000.
const (
	realDrift = 1e-3
	realStep  = time.Millisecond
)

// newEvidence returns the evidence that log, the log of an audit, contains.
func newEvidence(c Config, log []Attempt) *evidence {
	e := &evidence{claims: c.Claims, waitStep: c.WaitStep, fresh: c.Fresh}
	if c.Clock == nil {
		e.drift, e.step = realDrift, realStep
	}
	e.log = slices.Clone(log)
	slices.SortFunc(e.log, func(a, b Attempt) int { return cmp.Compare(a.begun, b.begun) })
	e.allowed = allowedTimes(e.log, func(Attempt) bool { return true })
	return e
}

// without returns a copy of e without the allowed attempts of the given attack.
func (e *evidence) without(attack string) *evidence {
	return e.only(func(a Attempt) bool { return a.Attack != attack })
}

// only returns a copy of e with only those allowed attempts for which keep returns true.
func (e *evidence) only(keep func(Attempt) bool) *evidence {
	part := *e
	part.allowed = allowedTimes(e.log, keep)
	return &part
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

func (e *evidence) shorter(d time.Duration) time.Duration {
	return time.Duration(float64(d) / (1 + e.drift))
}

func (e *evidence) longer(d time.Duration) time.Duration {
	return time.Duration(float64(d) / (1 - e.drift))
}

// exceeds reports whether more than Max was certainly allowed in some window, that is, at whichever
// instant between Sent and Came each decision was made.
func (e *evidence) exceeds(l window.Limit) bool {
	n, per := int(min(l.Max, int64(len(e.allowed.sent)))), e.shorter(l.Per)
	earliest := make([]time.Duration, len(e.allowed.sent))
	for i := range earliest {
		earliest[i] = e.allowed.sent[i] - e.step
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
func (e *evidence) most(l window.Limit) (most int) {
	per := e.shorter(l.Per)
	for i, sent := range e.allowed.sent {
		end, _ := slices.BinarySearch(e.allowed.came, sent-e.step+per)
		most = max(most, end-i) // by the end of this window, end answers had arrived, and at most i of those attempts had been sent before it
	}
	if e.exceeds(l) {
		most = max(most, int(l.Max)+1)
	}
	return most
}

// late returns how late the limiter may forget a unit under l.
func late(l window.Limit) time.Duration {
	if l.Resolution > 0 {
		return l.Resolution
	}
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

// reason reports whether a claim can be the reason for the denial of attempt i, which overlaps no
// other attempt. If deniedCount is true, denied attempts count too.
func (e *evidence) reason(i int, deniedCount bool) bool {
	for _, l := range e.claims {
		from := e.log[i].Sent - e.step - e.longer(l.Per+late(l))
		if from < 0 && !e.fresh || e.counted(i, from, deniedCount) >= l.Max {
			return true
		}
	}
	return false
}

// counted returns how many of the attempts before attempt i may have been counted after from. If
// deniedCount is true, denied attempts count too.
func (e *evidence) counted(i int, from time.Duration, deniedCount bool) (n int64) {
	for _, a := range e.log[:i] {
		if a.Answer == AnswerUnknown || a.Came > from && (a.Answer == AnswerAllowed || deniedCount) {
			n++
		}
	}
	return n
}

// needless returns the indices of the denials for which no claim is a reason. unexplained lists
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
	reported, withoutWait int // how many denials came with and without a wait
	short, long           []int
	endless               []int
	worst                 time.Duration // the most by which a wait in long was too long
}

// waits judges the wait of every denial.
func (e *evidence) waits() (w waits) {
	for i, d := range e.log {
		switch {
		case d.Answer != AnswerDenied:
		case d.RetryAfter <= 0:
			w.withoutWait++
		default:
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
		if next := e.log[i+1]; next.Answer == AnswerDenied && e.alone(i+1) && next.Sent >= d.Came+e.longer(d.RetryAfter)+e.step {
			w.short = append(w.short, i)
		}
	}
	if by := e.tooLong(i); by > 0 {
		w.long = append(w.long, i)
		w.worst = max(w.worst, by)
	}
	if d.RetryAfter > e.longest()+e.waitStep {
		w.endless = append(w.endless, i)
	}
}

// tooLong returns by how much more than WaitStep the wait of denial i was too long, judged by the
// next allowed attempt. If the result is not positive, nothing shows that the wait was too long.
func (e *evidence) tooLong(i int) time.Duration {
	d := e.log[i]
	for _, a := range e.log[i+1:] {
		if a.Answer == AnswerAllowed && a.Sent >= d.Came {
			return d.Sent + e.shorter(d.RetryAfter) - e.step - e.waitStep - a.Came
		}
	}
	return 0
}

// longest returns the longest time for which a unit can remain the reason for denials.
func (e *evidence) longest() (longest time.Duration) {
	for _, l := range e.claims {
		longest = max(longest, e.longer(l.Per+late(l))+e.step)
	}
	return longest
}

// Exceeds reports whether attempts made in real time prove that more than Max was allowed in some
// window. Use it for attempts that Run did not make, such as those of several clients that should
// share a budget.
func Exceeds(attempts []Attempt, l window.Limit) bool {
	return newEvidence(Config{}, attempts).exceeds(l)
}
