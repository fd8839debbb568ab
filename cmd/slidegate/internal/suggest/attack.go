package suggest

import (
	"cmp"
	"slices"
)

// isAttacked reports whether the log shows an attack: by one event that the tightest set stops, by
// many events that never succeed, or by one event far beyond all others.
func (h *History) isAttacked(sets []Set) bool {
	stopped := len(sets) > 0 && sets[len(sets)-1].attackers > 0
	return stopped || h.manyFail() || !h.hasResults && h.oneIsBeyond()
}

// isAttack reports whether limits would stop so many of an event's attempts that it must be an
// attacker and not a user: at least ten, and two thirds of the total. It then tried three times as
// often as the limits allow.
func isAttack(stopped, total int) bool { return stopped >= 10 && 3*stopped >= 2*total }

// manyFail reports whether at least a quarter of the events never succeeded, in at least 50
// attempts together. This reveals an attack from many addresses, each of which tries only a few
// times. Legitimate users succeed eventually, unless they give up.
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

// oneIsBeyond reports whether one event has a hundred times as many attempts as the median event.
// Otherwise, in a log without results, all but one of a few attackers would count as honest.
func (h *History) oneIsBeyond() bool {
	all := slices.SortedFunc(slices.Values(h.events), func(a, b event) int { return cmp.Compare(a.total, b.total) })
	return all[len(all)-1].total >= 100*all[len(all)/2].total
}

// Busiest returns the event with the most attempts, and their number.
func (h *History) Busiest() (name string, attempts int) {
	e := slices.MaxFunc(h.events, func(a, b event) int { return cmp.Compare(a.total, b.total) })
	return e.name, e.total
}
