package audit

import (
	"cmp"
	"slices"
	"time"

	"github.com/slidegate/slidegate/window"
)

// model is a rate limiting algorithm for one limit. Models prove nothing. They only serve to name
// the algorithm that a limiter resembles, once the limiter is known to be faulty.
type model struct {
	name      string
	oneBudget bool
	// allows reports whether the model would allow an attempt at the given time, after the attempts
	// that it has counted.
	allows func(l window.Limit, counted []time.Time, at time.Time) bool
}

var models = []model{
	{"a fixed window by the clock: all units come back at once when the next window starts", true, fixedOfClock},
	{"a fixed window that the first attempt opens: all units come back at once when it ends", true, fixedOfFirst},
	{"an estimate from two fixed windows (sliding window counter)", true, estimate},
	{"a token bucket or GCRA: a burst of Max, and a refill at the same time", true, bucket},
	{"twice the limit, like two instances that count separately", false, multiple(2)},
	{"three times the limit, like three instances that count separately", false, multiple(3)},
	{"no limit at all: nothing was denied", false, unlimited}, // last, because a few attempts also match other models
}

// resembles returns the model that explains nearly all answers, or the zero model if there is none.
func (e *evidence) resembles(began time.Time) model {
	if !slices.ContainsFunc(e.log, func(a Attempt) bool { return a.Answer == AnswerDenied }) {
		return models[len(models)-1]
	}
	wrong := make(map[string]int, len(models))
	for _, m := range models {
		wrong[m.name] = e.mismatches(m, began)
	}
	ranked := slices.SortedFunc(slices.Values(models), func(a, b model) int { return cmp.Compare(wrong[a.name], wrong[b.name]) })
	best, second := wrong[ranked[0].name], wrong[ranked[1].name]
	if best > 2+len(e.log)/10 || 2*best > second {
		return model{}
	}
	return ranked[0]
}

// mismatches returns how many answers differ from those of m under every claim, at whichever
// instant between Sent and Came the attempts were decided. It skips concurrent attempts, because
// their order is unknown. The model counts the attempts that the limiter actually allowed, so that
// one mismatch does not lead to another.
func (e *evidence) mismatches(m model, began time.Time) (n int) {
	counted := []time.Time{}
	wouldAllow := func(at time.Time) bool {
		return !slices.ContainsFunc(e.claims, func(l window.Limit) bool { return !m.allows(l, counted, at) })
	}
	for _, a := range e.log {
		allowed := a.Answer == AnswerAllowed
		first, last := began.Add(a.Sent-2*e.step), began.Add(a.Came+2*e.step)
		if a.Answer != AnswerUnknown && a.Attack != parallel && wouldAllow(first) != allowed && wouldAllow(last) != allowed {
			n++
		}
		if allowed {
			counted = append(counted, began.Add((a.Sent+a.Came)/2))
		}
	}
	return n
}

// after returns how many of the times in counted are after from. The times are nearly in order.
func after(counted []time.Time, from time.Time) (n int64) {
	for _, at := range slices.Backward(counted) {
		if !at.After(from) {
			break
		}
		n++
	}
	return n
}

func fixedOfClock(l window.Limit, counted []time.Time, at time.Time) bool {
	return after(counted, at.Truncate(l.Per).Add(-1)) < l.Max
}

func fixedOfFirst(l window.Limit, counted []time.Time, at time.Time) bool {
	var opened time.Time
	n := int64(0)
	for _, unit := range append(slices.Clip(counted), at) {
		if unit.Sub(opened) >= l.Per {
			opened, n = unit, 0
		}
		n++
	}
	return n <= l.Max
}

func estimate(l window.Limit, counted []time.Time, at time.Time) bool {
	begin := at.Truncate(l.Per)
	current := after(counted, begin.Add(-1))
	previous := after(counted, begin.Add(-l.Per-1)) - current
	weight := 1 - float64(at.Sub(begin))/float64(l.Per)
	return float64(previous)*weight+float64(current)+1 <= float64(l.Max)
}

func bucket(l window.Limit, counted []time.Time, at time.Time) bool {
	var level float64
	var last time.Time
	for _, unit := range append(slices.Clip(counted), at) {
		level = max(0, level-float64(unit.Sub(last))*float64(l.Max)/float64(l.Per)) + 1
		last = unit
	}
	return level <= float64(l.Max)+1e-9
}

func multiple(n int64) func(window.Limit, []time.Time, time.Time) bool {
	return func(l window.Limit, counted []time.Time, at time.Time) bool {
		return after(counted, at.Add(-l.Per)) < n*l.Max
	}
}

func unlimited(window.Limit, []time.Time, time.Time) bool { return true }

// lockout returns the fault that causes denials which no claim requires, but which counted denials
// explain. If there are several claims, most denials follow another denial. So lockout returns
// KindSharedBudget only if a shared budget explains nearly all answers.
func (e *evidence) lockout() Kind {
	backward := slices.Clone(e.claims)
	slices.Reverse(backward)
	one := min(e.oneByOne(e.claims), e.oneByOne(backward))
	switch {
	case len(e.claims) == 1 || e.oneBudget() <= one:
		return KindDeniedCount
	case one > 2+len(e.log)/20:
		return KindNeedless
	}
	return KindSharedBudget
}

// oneByOne returns how many answers differ from those of a limiter that checks its limits in the
// given order, counts each limit separately, and stops at the first limit that denies.
func (e *evidence) oneByOne(claims []window.Limit) (wrong int) {
	counted := make([][]time.Duration, len(claims))
	for _, a := range e.log {
		allows := true
		for i, l := range claims {
			if allows = allows && recent(counted[i], a.Sent-l.Per) < l.Max; !allows {
				break
			}
			counted[i] = append(counted[i], a.Sent)
		}
		if allows != (a.Answer == AnswerAllowed) {
			wrong++
		}
	}
	return wrong
}

// oneBudget returns how many answers differ from those of a limiter that counts every attempt,
// allowed or denied, under every claim.
func (e *evidence) oneBudget() (wrong int) {
	var counted []time.Duration
	for _, a := range e.log {
		full := func(l window.Limit) bool { return recent(counted, a.Sent-l.Per) >= l.Max }
		if slices.ContainsFunc(e.claims, full) == (a.Answer == AnswerAllowed) {
			wrong++
		}
		counted = append(counted, a.Sent)
	}
	return wrong
}

// recent returns how many of the times in counted are after from.
func recent(counted []time.Duration, from time.Duration) (n int64) {
	for _, at := range slices.Backward(counted) {
		if at <= from {
			break
		}
		n++
	}
	return n
}
