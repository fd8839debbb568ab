package logs

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// freeText reads lines of any format that contain a time. --by must be a regular expression.
type freeText struct {
	calendar
	where  *regexp.Regexp // its single group finds the time; nil means the first time in the line
	layout string         // the layout of the time; empty means any known format
	unix   bool           // times are numbers, because none of the first lines contains a date
	dated  bool           // times come from the envelope
}

var (
	errNoTime  = errors.New("it contains no time")
	errByGroup = errors.New("its lines have no fields, so --by has to be a regular expression with a group, as in " + exampleBy)
)

// asText returns the format for a line that contains a date, or a time that --time-regex finds.
func asText(line string, o Options, dated bool) format {
	return ifRead(&freeText{where: o.TimeRegex, layout: o.TimeFormat, dated: dated}, line)
}

// asUnixText returns the format for a line that contains a number that can be a time.
func asUnixText(line string, _ Options, dated bool) format {
	return ifRead(&freeText{unix: true, dated: dated}, line)
}

func (*freeText) fields() []string        { return []string{} }
func (*freeText) byDefault(string) string { return anyField }

func (t *freeText) read(line, _ string) (a Attempt, err error) {
	a = Attempt{Units: 1, Times: 1}
	a.At, err = t.at(line)
	a.Yearless = t.assumed
	return a, err
}

func (t *freeText) at(line string) (time.Time, error) {
	switch {
	case t.dated:
		return time.Time{}, nil
	case t.where != nil:
		return t.byRegex(line)
	}
	find := t.findTime
	if t.unix {
		find = findUnix
	}
	at, ok := find(line)
	if !ok {
		return at, errNoTime
	}
	return at, nil
}

// byRegex parses the time that --time-regex finds.
func (t *freeText) byRegex(line string) (time.Time, error) {
	m := t.where.FindStringSubmatch(line)
	if m == nil {
		return time.Time{}, fmt.Errorf("--time-regex %s finds no time in it", t.where)
	}
	if at, ok := t.findTime(m[1]); ok && t.layout == "" {
		return at, nil
	}
	if isYearless(t.layout) {
		if at, err := time.Parse(t.layout, m[1]); err == nil {
			return t.withYear(at), nil
		}
	}
	return parseLayout(t.layout, m[1])
}

// isYearless reports whether a layout contains a month but no year.
func isYearless(layout string) bool {
	in := func(month time.Month) string { return time.Date(2000, month, 1, 0, 0, 0, 0, time.UTC).Format(layout) }
	return !strings.Contains(layout, "06") && in(time.January) != in(time.February)
}
