package lua_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// attempts holds the calls that a line of a history makes.
type attempts struct {
	verb, units string
	now, every  int64 // when the first call is made, and the time between calls
	times       int
	since       []string // when refunded units were counted
}

// parseAttempts parses a line such as 1s allow 1 x 300 every 2s.
func (s script) parseAttempts(words []string) (a attempts, err error) {
	if a.now, err = s.parseInstant(words[0]); err != nil {
		return a, fmt.Errorf("no line starts with %q: write limits, record, reset, or an instant such as 1h30m or -5s", words[0])
	}
	a.verb, a.units, a.times = strings.Join(words[1:min(2, len(words))], ""), "1", 1
	if !slices.Contains(s.verbs, a.verb) {
		return a, fmt.Errorf("%q is not a verb: write one of %s", a.verb, strings.Join(s.verbs, ", "))
	}
	if len(words) > 2 {
		a.units = words[2]
	}
	if _, err := strconv.ParseInt(a.units, 10, 64); err != nil {
		return a, fmt.Errorf("%q is not a number of units: write an integer", a.units)
	}
	return a, s.parseRest(&a, words[min(3, len(words)):])
}

// parseRest parses what follows the units.
func (s script) parseRest(a *attempts, words []string) (err error) {
	switch text := strings.Join(words, " "); {
	case a.verb == "refund":
		if len(words) != 2 || words[0] != "of" {
			return fmt.Errorf("%q is not when the refunded units were counted: write refund 2 of 1s", text)
		}
		var since int64
		since, err = s.parseInstant(words[1])
		a.since = []string{digits(since)}
	case len(words) > 0:
		if len(words) != 4 || words[0] != "x" || words[2] != "every" {
			return fmt.Errorf("%q cannot follow the units: write nothing, or x 300 every 2s", text)
		}
		a.every, err = s.parseInstant(words[3])
		a.every -= s.midnight()
		if a.times, _ = strconv.Atoi(words[1]); a.times < 1 {
			return fmt.Errorf("%q is not a number of calls: write a positive integer", words[1])
		}
	}
	return err
}

// parseInstant parses a time after midnight, such as 1h30m or -5s.
func (s script) parseInstant(text string) (int64, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time: write one such as 1h30m or -5s", text)
	}
	return s.midnight() + int64(d/s.unit), nil
}

// parseLimits parses limits as written in a history, and returns them as arguments of the script.
func (s script) parseLimits(words []string) (args []string, err error) {
	form := map[int]string{2: "Max/Per, such as 2/1h", 3: "Max/Per@Resolution, such as 2/1h@1m"}[s.limited]
	for _, text := range words {
		limit, err := s.parseLimit(text)
		if err != nil || strings.Contains(text, "@") != (s.limited == 3) {
			return nil, fmt.Errorf("%q is not a limit of %s: write %s, with times in h, m, s or ms", text, s.name, form)
		}
		args = append(args, limit...)
	}
	return args, nil
}

// parseLimit parses Max/Per@Resolution, and returns it as arguments of the script. A script without
// a Resolution omits it.
func (s script) parseLimit(text string) ([]string, error) {
	most, rest, _ := strings.Cut(text, "/")
	per, width, _ := strings.Cut(rest, "@")
	_, err := strconv.ParseInt(most, 10, 64)
	d, wrong := time.ParseDuration(per)
	args, err := []string{digits(d.Milliseconds()), most}, errors.Join(err, wrong)
	if s.limited == 3 {
		d, wrong = time.ParseDuration(width)
		args, err = append(args, digits(d.Milliseconds())), errors.Join(err, wrong)
	}
	return args, err
}
