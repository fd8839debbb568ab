package suggest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/window"
)

// A line is an attempt in an invented log.
type line struct {
	at    time.Duration // since the start of the log
	event string
	units int64
}

// madeUp returns a random log in chronological order, with a few events. About half of the logs
// contain an attacker. Some attempts are for more than one unit.
func madeUp(r *rand.Rand) (all []line) {
	span := []time.Duration{time.Minute, 2 * time.Hour, 20 * 24 * time.Hour}[r.IntN(3)]
	for range 2 + r.IntN(100) {
		all = append(all, line{time.Duration(r.Int64N(int64(span))).Truncate(time.Millisecond), fmt.Sprintf("event-%d", r.IntN(1+r.IntN(20))), 1 + r.Int64N(1+r.Int64N(5))})
	}
	if at, gap := time.Duration(r.Int64N(int64(span))).Truncate(time.Second), time.Duration(1+r.IntN(60))*time.Second; r.IntN(2) == 0 {
		for range 10 + r.IntN(100) {
			all = append(all, line{at, "attacker", 1})
			at += gap
		}
	}
	slices.SortStableFunc(all, func(a, b line) int { return int(a.at - b.at) })
	return all
}

// exactly returns how many attempts a model that keeps every unit would deny, and how many of those
// belong to honest events.
func exactly(log []line, limits []window.Limit, honest map[string]bool) (stopped, delayed int) {
	counted := map[string][]line{}
	for _, l := range log {
		denied := slices.ContainsFunc(limits, func(limit window.Limit) bool {
			units := l.units
			for _, c := range counted[l.event] {
				if c.at > l.at-limit.Per {
					units += c.units
				}
			}
			return units > limit.Max
		})
		switch {
		case !denied:
			counted[l.event] = append(counted[l.event], l)
		case honest[l.event]:
			delayed++
			fallthrough
		default:
			stopped++
		}
	}
	return stopped, delayed
}

// TestProposalsAreExact checks each proposal's figures against a model that keeps every unit. It
// also checks that no other single limit that is tried stops more attempts. It leaves out limits
// above 60 units, which count in buckets.
func TestProposalsAreExact(t *testing.T) {
	for i := range uint64(100) {
		seed := []uint64{430, 1690, 1840, 1950}[i%4] + i/4 // including some for which a tighter limit delays fewer attempts
		r := rand.New(rand.NewPCG(seed, 7))
		log, text := madeUp(r), strings.Builder{}
		for _, l := range log {
			fmt.Fprintf(&text, "%s,%s,%d\n", time.Unix(1_700_000_000, 0).Add(l.at).UTC().Format("2006-01-02T15:04:05.000Z"), l.event, l.units)
		}
		h, share := read(t, text.String()), []float64{0, 0.01, 0.05, 0.1}[r.IntN(4)]
		p, err := h.Propose(t.Context(), share)
		if err != nil {
			t.Fatal(err)
		}
		honest := map[string]bool{}
		for _, e := range h.events {
			honest[e.name] = e.honest
		}
		best := 0
		for _, set := range p.Sets {
			if len(set.Limits) == 1 {
				best = set.Stopped
			}
			if slices.ContainsFunc(set.Limits, func(l window.Limit) bool { return l.Max > 60 }) {
				continue
			}
			if stopped, delayed := exactly(log, set.Limits, honest); stopped != set.Stopped || delayed != set.Delayed || delayed > p.MayWait {
				t.Errorf("seed %d: %+v; exactly %d and %d", seed, set, stopped, delayed)
			}
		}
		for _, per := range windows {
			for _, units := range steps[:slices.Index(steps, 60)+1] {
				limit := []window.Limit{{Max: units, Per: per}}
				stopped, delayed := exactly(log, limit, honest)
				if stopped > best && delayed <= p.MayWait && per < log[len(log)-1].at-log[0].at {
					t.Errorf("seed %d: %v stops %d and delays %d, at most %d may be; proposed is %+v", seed, limit, stopped, delayed, p.MayWait, p.Sets)
				}
			}
		}
	}
}
