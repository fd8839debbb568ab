package limiter

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Limit is one of a limiter's limits. Times are in ms.
type Limit struct {
	Max int64
	Per int64

	// Fine is the bucket width for units that Max bounds. Coarse is the bucket width for unbounded
	// units: charges, and all units of a limiter that counts denied attempts. Both are 0 if the
	// script takes no width.
	Fine, Coarse int64

	Fault error // an error if the limit is invalid, with the remedy
}

// Limits holds the limits of a limiter, in the forms that the stores need. It is immutable.
type Limits struct {
	list []Limit
	args []string // the script arguments for all limits
	text string   // the same arguments, as one string

	few     [fewLimits]Limit // backing arrays of list and args, unless there are more limits
	fewArgs [3 * fewLimits]string
}

// MaxLimits is the maximum number of limits, because a record holds a section for each of them.
const MaxLimits = 31

// newLimits returns the Limits for list, which must have been checked. If coarse is true, the
// script uses the Coarse bucket widths instead of the Fine ones.
func newLimits(list []Limit, coarse bool) *Limits {
	l := &Limits{}
	l.list = append(l.few[:0], list...)
	l.args, l.text = scriptArgs(l.fewArgs[:0], l.list, coarse)
	return l
}

// All returns the limits. Do not modify them.
func (l *Limits) All() []Limit { return l.list }

// argsFor returns the script arguments that describe the limits in a request with the verb v.
func (l *Limits) argsFor(v Verb) []string {
	if v != Charge {
		return l.args
	}
	args, _ := scriptArgs(nil, l.list, true)
	return args
}

// scriptArgs appends the script arguments for limits to args: for each limit Per, Max and, if there
// is one, the bucket width. All arguments are substrings of text, which it also returns.
func scriptArgs(args []string, limits []Limit, coarse bool) (_ []string, text string) {
	var digits [160]byte
	var few [3 * fewLimits]int
	all, ends := digits[:0], few[:0]
	for i := range limits {
		l := &limits[i]
		for _, number := range [...]int64{l.Per, l.Max, l.Width(coarse)} {
			if number > 0 {
				all = strconv.AppendInt(all, number, 10)
				ends = append(ends, len(all))
				all = append(all, ' ')
			}
		}
	}
	text = string(all)
	begin := 0
	for _, end := range ends {
		args = append(args, text[begin:end])
		begin = end + 1
	}
	return args, text
}

// Width returns the Coarse bucket width if coarse is true, and the Fine width otherwise.
func (l *Limit) Width(coarse bool) int64 {
	if coarse {
		return l.Coarse
	}
	return l.Fine
}

// checkLimits returns an error if limits are invalid. The error states the remedy.
func (cfg *Config) checkLimits(limits []Limit) error {
	switch {
	case len(limits) == 0:
		return errors.New("no limits; give at least one, such as window.PerHour(5)")
	case len(limits) > MaxLimits:
		return fmt.Errorf("%d limits; one record holds at most %d", len(limits), MaxLimits)
	}
	for i, l := range limits {
		if l.Fault != nil {
			return fmt.Errorf("limit %d with %w", i+1, l.Fault)
		}
		if twin := slices.IndexFunc(limits[:i], func(other Limit) bool { return other.Per == l.Per }); twin >= 0 {
			return fmt.Errorf("two limits with a Per of %v, %s and %s; keep the tighter one",
				time.Duration(l.Per)*time.Millisecond, cfg.text(limits[twin]), cfg.text(l))
		}
	}
	return nil
}
