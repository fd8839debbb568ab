package logs

import (
	"encoding/csv"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// columns are lines "time,event" or "time,event,units". A field may be quoted as in CSV, within the line; spaces around a
// field do not count.
type columns struct{}

func (columns) fields() string        { return "event" }
func (columns) has(field string) bool { return field == "event" }

func isColumns(line string) bool {
	_, err := columns{}.read(line, "event")
	return err == nil
}

func (columns) read(line, _ string) (Attempt, error) {
	fields, err := splitFields(line)
	if err != nil {
		return Attempt{}, err
	}
	a := Attempt{Event: strings.TrimSpace(fields[1]), Units: 1, Times: 1}
	if a.At, err = parseTime(strings.TrimSpace(fields[0])); err != nil {
		return Attempt{}, err
	}
	if a.Event == "" {
		return Attempt{}, errors.New("the event is empty")
	}
	if len(fields) == 3 {
		a.Units, err = parseUnits(strings.TrimSpace(fields[2]))
	}
	return a, err
}

func splitFields(line string) (fields []string, err error) {
	fields = strings.Split(line, ",")
	if strings.Contains(line, `"`) {
		r := csv.NewReader(strings.NewReader(line))
		r.TrimLeadingSpace = true
		if fields, err = r.Read(); err != nil {
			return nil, errors.New(`its quotes do not match; quote a field as "a, b", a quote in it as ""`)
		}
	}
	if len(fields) != 2 && len(fields) != 3 {
		return nil, fmt.Errorf("fields between commas: %d; write time,event or time,event,units", len(fields))
	}
	return fields, nil
}

func parseUnits(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is no number of units; write 1 or more", s)
	}
	return n, nil
}

// isHeader reports whether a line names the columns instead of filling them.
func isHeader(line string) bool {
	first, _, found := strings.Cut(line, ",")
	return found && !strings.ContainsAny(first, "0123456789")
}
