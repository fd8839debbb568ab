package suggest

import (
	"cmp"
	"slices"
)

// isAttacked reports whether the log shows an attack: by one event that the tightest set stops, by
// many events that never succeed, or by one event with far more attempts than all others.
func (h *History) isAttacked(sets []Set) bool {
	stopped := len(sets) > 0 && sets[len(sets)-1].attackers > 0
	return stopped || h.manyFail() || !h.hasResults && h.oneIsBeyond()
}

// isAttack reports whether limits would stop so many of an event's attempts that the event must be
// an attacker rather than a user: at least ten attempts, and two thirds of the total. The event
// then made three times as many attempts as the limits allow.
func isAttack(stopped, total int) bool { return stopped >= 10 && 3*stopped >= 2*total }

// manyFail reports whether at least a quarter of all events never succeeded, in at least 50
// attempts altogether. This reveals an attack from many addresses that try only a few times each.
// Legitimate users eventually succeed, unless they give up.
func (h *History) manyFail() bool {
	if !h.hasResults {
		return false
	}
	events, attempts := 0, 0
	for _, e := range h.events {
		if !slices.ContainsFunc(e.attempts, func(a attempt) bool { return a.succeeded }) {
			events++
			attempts += e.total
		}
	}
	return 4*events >= len(h.events) && attempts >= 50
}

// oneIsBeyond reports whether an event has at least a hundred times as many attempts as the median
// event. Without this check, in a log without results, all but one of a few attackers would count
// as honest.
func (h *History) oneIsBeyond() bool {
	all := slices.SortedFunc(slices.Values(h.events), func(a, b event) int { return cmp.Compare(a.total, b.total) })
	return all[len(all)-1].total >= 100*all[len(all)/2].total
}

// Busiest returns the event with the most attempts, and the number of its attempts.
func (h *History) Busiest() (name string, attempts int) {
	e := slices.MaxFunc(h.events, func(a, b event) int { return cmp.Compare(a.total, b.total) })
	return e.name, e.total
}
