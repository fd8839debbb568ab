package audit

import (
	"fmt"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/window"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults that Run finds.
const (
	KindExcess       Kind = "excess"         // more than Max in a window
	KindRace         Kind = "race"           // more than Max in a window, but only with concurrent attempts
	KindNeedless     Kind = "needless"       // denied although no limit requires it
	KindDeniedCount  Kind = "denied-count"   // denied attempts use up budget
	KindSharedBudget Kind = "shared-budget"  // attempts that one limit denies use up another limit
	KindWaitTooShort Kind = "wait-too-short" // the next attempt after a wait was denied
	KindWaitTooLong  Kind = "wait-too-long"  // an attempt during a wait was allowed, or a wait is longer than any window
)

// Finding represents a proven fault.
type Finding struct {
	Kind   Kind   `json:"kind"`
	Title  string `json:"title"`
	Seen   string `json:"seen"`   // what the audit saw
	Means  string `json:"means"`  // what the fault means for clients
	Repair string `json:"repair"` // how to fix the limiter
}

// text returns the finding without its title, one item per line.
func (f Finding) text() string {
	return "seen:   " + f.Seen + "\nmeans:  " + f.Means + "\nrepair: " + f.Repair
}

// Claim represents a limit that the limiter claims to keep, and what the audit observed.
type Claim struct {
	Limit window.Limit `json:"limit"`
	Most  int          `json:"most"` // the largest number of units that were certainly allowed in one window
}

// Report represents the result of an audit.
type Report struct {
	Began     time.Time     `json:"began"` // on Config.Clock
	Took      time.Duration `json:"took_ns"`
	Claims    []Claim       `json:"claims"`   // in the order of Config.Claims
	Allowed   int           `json:"allowed"`  // attempts
	Denied    int           `json:"denied"`   // attempts
	Unknown   int           `json:"unknown"`  // attempts that ended in an error
	Needless  int           `json:"needless"` // denials that no claim requires
	Waits     Waits         `json:"waits"`
	Findings  []Finding     `json:"findings"`       // empty if nothing is wrong
	Like      string        `json:"like,omitempty"` // the algorithm that the limiter resembles, if it allows too much
	Attacks   []string      `json:"attacks"`        // what was tested
	NotTested []string      `json:"not_tested"`     // what was not tested, and why
	Attempts  []Attempt     `json:"attempts"`       // in the order of sending
}

// Waits describes how accurate the waits of denials were.
type Waits struct {
	Reported  int           `json:"reported"`       // denials with a wait
	TooShort  int           `json:"too_short"`      // waits that were certainly too short
	TooLong   int           `json:"too_long"`       // waits that were certainly longer than needed
	TooLongBy time.Duration `json:"too_long_by_ns"` // the most by which a wait was longer than needed
}

// newReport returns the report on the attempts that r has logged.
func newReport(c Config, p Plan, r *runner) *Report {
	e := newEvidence(c, r.log)
	rep := &Report{
		Began: r.began, Took: r.since(), Attempts: e.log, Attacks: r.performed,
		Findings: []Finding{}, NotTested: append([]string{}, slices.Concat(p.NotTested, r.inconclusive)...),
	}
	for _, a := range e.log {
		switch a.Answer {
		case AnswerAllowed:
			rep.Allowed++
		case AnswerDenied:
			rep.Denied++
		case AnswerUnknown:
			rep.Unknown++
		}
	}
	for _, l := range c.Claims {
		rep.Claims = append(rep.Claims, Claim{l, e.most(l)})
	}
	rep.judge(e)
	rep.limits(e)
	return rep
}

// judge adds the findings. It omits a fault that merely follows from another fault.
func (r *Report) judge(e *evidence) {
	w := e.waits()
	r.Waits = Waits{Reported: w.reported, TooShort: len(w.short), TooLong: len(w.long), TooLongBy: w.worst}
	needless, unexplained := e.needless()
	r.Needless = len(needless)
	oneBudget := r.excess(e)
	switch {
	case len(unexplained) > 0:
		r.Findings = append(r.Findings, foundNeedless(e, needless, unexplained))
	case len(needless) > 0:
		f := foundLockout(e, needless)
		r.Findings = append(r.Findings, f)
		oneBudget = oneBudget && f.Kind != KindSharedBudget // each wait is for one limit only
	}
	if oneBudget {
		r.judgeWaits(e, w, len(needless) > 0)
	}
}

// judgeWaits adds the findings about waits. If the limiter forgets units too late (tooLate), it
// also reports waits that are longer than a window. That is not a separate finding.
func (r *Report) judgeWaits(e *evidence, w waits, tooLate bool) {
	if len(w.short) > 0 {
		r.Findings = append(r.Findings, foundShort(e, w))
	}
	switch {
	case len(w.long) > 0:
		r.Findings = append(r.Findings, foundLong(e, w))
	case len(w.endless) > 0 && !tooLate:
		r.Findings = append(r.Findings, foundEndless(e, w))
	}
}

// excess adds a finding if more than Max was allowed. It reports whether the limiter seems to have
// only one budget: if there are several, each has its own waits, and waits cannot be judged. It
// calls the excess a race only if sequential attempts used up Max but did not exceed it. If answers
// take too long for that, sequential attempts prove nothing.
func (r *Report) excess(e *evidence) bool {
	alone := e.without(parallel)
	for i, l := range e.claims {
		if !e.exceeds(l) {
			continue
		}
		if !alone.exceeds(l) && alone.most(l) >= int(l.Max) {
			r.Findings = append(r.Findings, foundRace(r.Claims[i]))
			return false
		}
		like := e.resembles(r.Began)
		r.Like = like.name
		r.Findings = append(r.Findings, foundExcess(r.Claims[i], like.name))
		return like.oneBudget
	}
	return true
}

// limits adds to NotTested whatever the audit could not test.
func (r *Report) limits(e *evidence) {
	if r.Denied == 0 {
		r.NotTested = append(r.NotTested, "denials and waits: no attempt was denied")
	} else if r.Waits.Reported == 0 {
		r.NotTested = append(r.NotTested, "waits: no denial says how long to wait, so clients can only guess")
	}
	if longest := e.longest(); !e.fresh && r.Took < 2*longest {
		r.NotTested = append(r.NotTested, fmt.Sprintf("needless denials: the audit took less than two windows of %s, so earlier attempts may still count", brief(longest)))
	}
	if r.Unknown > 0 {
		r.NotTested = append(r.NotTested, fmt.Sprintf("the effect of %d attempts without an answer: they may have been counted, so each can explain a later denial", r.Unknown))
	}
}

// Found reports whether there is a finding of the given kind.
func (r *Report) Found(k Kind) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == k })
}

func foundExcess(c Claim, like string) Finding {
	f := Finding{
		Kind:  KindExcess,
		Title: "It allows more than " + c.Limit.Label(),
		Seen: fmt.Sprintf("%d attempts were allowed within one window of %s, %.2f times the claim.",
			c.Most, brief(c.Limit.Per), float64(c.Most)/float64(c.Limit.Max)),
		Means:  "Clients that know the algorithm can repeatedly exceed the limit.",
		Repair: "Count in a sliding window, in one place for all instances; or claim what it actually allows.",
	}
	if like != "" {
		f.Means += " It behaves like " + like + "."
	}
	return f
}

func foundRace(c Claim) Finding {
	return Finding{
		Kind:   KindRace,
		Title:  "Concurrent attempts get past " + c.Limit.Label(),
		Seen:   fmt.Sprintf("%d attempts were allowed within one window of %s, when %d were made at once. Without these, the audit proves no more than %d.", c.Most, brief(c.Limit.Per), parallelAttempts, c.Limit.Max),
		Means:  "It checks first and counts later, or each of several parallel connections has its own budget.",
		Repair: "Decide and count in one atomic step: a script in Redis, or a lock.",
	}
}

// foundLockout returns the finding for denials which no claim requires, but which counted denials
// explain.
func foundLockout(e *evidence, needless []int) Finding {
	switch e.lockout() {
	case KindSharedBudget:
		return foundShared(e, needless)
	case KindDeniedCount:
		return foundDeniedCount(e, needless)
	}
	return foundNeedless(e, needless, needless)
}

// foundNeedless returns the finding for needless denials. It states how many of them are
// unexplained even if denied attempts count.
func foundNeedless(e *evidence, needless, unexplained []int) Finding {
	seen := were(len(needless)) + " denied although fewer than Max attempts were counted in each preceding window."
	if others := len(needless) - len(unexplained); others > 0 {
		seen += fmt.Sprintf(" If denied attempts count too, that explains %d of these denials, but not the other %d.", others, len(unexplained))
	}
	return Finding{
		Kind:   KindNeedless,
		Title:  "It denies attempts that the limits allow",
		Seen:   fmt.Sprintf("%s The first was in the attack %q.", seen, e.log[needless[0]].Attack),
		Means:  "Clients that keep the limit are locked out: the limiter is stricter than it claims, or forgets too late.",
		Repair: "Forget a unit when it is as old as the window. If this budget had another user meanwhile, audit one that nobody else uses.",
	}
}

func foundDeniedCount(e *evidence, needless []int) Finding {
	return Finding{
		Kind:   KindDeniedCount,
		Title:  "Denied attempts prolong the lockout",
		Seen:   fmt.Sprintf("%s denied although fewer than Max attempts were counted in each preceding window, always after other denied attempts. The first was in the attack %q.", were(len(needless)), e.log[needless[0]].Attack),
		Means:  "A client that keeps retrying is locked out forever, and anyone who can send in its name can keep it locked out.",
		Repair: "Count allowed attempts only. If the lockout is intended, document it.",
	}
}

func foundShared(e *evidence, needless []int) Finding {
	return Finding{
		Kind:   KindSharedBudget,
		Title:  "Limits use up each other's budget",
		Seen:   fmt.Sprintf("%s denied although fewer than Max attempts were counted in each preceding window, after attempts that another limit had denied. The first was in the attack %q.", were(len(needless)), e.log[needless[0]].Attack),
		Means:  "Attempts that one limit denies are counted under another, because the limits are checked one after the other.",
		Repair: "Decide all limits in one step, and count an attempt in all of them or in none.",
	}
}

func foundShort(e *evidence, w waits) Finding {
	i := w.short[0]
	d, next := e.log[i], e.log[i+1]
	seen := fmt.Sprintf("%d of %d waits were too short. After a denial with a wait of %s, the very next attempt was made %s later and denied", len(w.short), w.reported, brief(d.RetryAfter), brief(next.Sent-d.Came))
	if next.RetryAfter > 0 {
		seen += ", with another wait of " + brief(next.RetryAfter)
	}
	return Finding{
		Kind: KindWaitTooShort, Title: "Waits are too short", Seen: seen + ".",
		Means:  "Clients that wait as long as reported are denied again.",
		Repair: "Compute the wait from the time at which the oldest unit is forgotten, and round it up.",
	}
}

func foundLong(e *evidence, w waits) Finding {
	return Finding{
		Kind: KindWaitTooLong, Title: "Waits are too long",
		Seen:   fmt.Sprintf("%d of %d waits were longer than needed, the worst by at least %s.", len(w.long), w.reported, brief(w.worst+e.waitStep)),
		Means:  "Clients that wait as long as reported stay away longer than they need to.",
		Repair: "Compute the wait from the time at which the oldest unit is forgotten, not from the whole window.",
	}
}

func foundEndless(e *evidence, w waits) Finding {
	return Finding{
		Kind: KindWaitTooLong, Title: "Waits are too long",
		Seen:   fmt.Sprintf("%d of %d waits were longer than any window, for example %s.", len(w.endless), w.reported, brief(e.log[w.endless[0]].RetryAfter)),
		Means:  "After a window without attempts, a limiter has forgotten everything, so nobody has to wait longer.",
		Repair: "Compute the wait from the time at which the oldest unit is forgotten.",
	}
}

func were(n int) string {
	if n == 1 {
		return "1 attempt was"
	}
	return fmt.Sprintf("%d attempts were", n)
}

// brief formats a duration with about three significant digits.
func brief(d time.Duration) string {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= 100*unit {
			d = d.Round(unit)
			break
		}
	}
	return clock.Format(d)
}
