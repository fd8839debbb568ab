package logs

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// columns reads lines of the form "time,event" or "time,event,units". A field may be quoted as in
// CSV, but cannot span lines. Spaces around a field are ignored.
type columns struct{ *splitter }

var columnFields = []string{defaultEvent}

func (*columns) fields() []string        { return columnFields }
func (*columns) byDefault(string) string { return defaultEvent }

func asColumns(line string, _ Options, dated bool) format {
	if dated {
		return nil
	}
	return ifRead(&columns{newSplitter()}, line)
}

func (c *columns) read(line, _ string) (Attempt, error) {
	fields, err := c.split(line)
	if err != nil {
		return Attempt{}, err
	}
	if len(fields) != 2 && len(fields) != 3 {
		return Attempt{}, fmt.Errorf("fields between commas: %d; write time,event or time,event,units", len(fields))
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

var (
	errQuotes = errors.New(`its quotes do not match; quote a field as "a, b", a quote in it as ""`)
	errOpen   = fmt.Errorf("%w; a field cannot contain a newline here", errQuotes)
)

// splitter splits CSV lines into fields. It gives encoding/csv one line at a time, so that a field
// cannot hide the lines after it. It splits lines without quotes itself, because that is faster.
type splitter struct {
	from strings.Reader
	csv  *csv.Reader
}

func newSplitter() *splitter {
	s := &splitter{}
	s.csv = csv.NewReader(&s.from)
	s.csv.FieldsPerRecord, s.csv.TrimLeadingSpace, s.csv.ReuseRecord = -1, true, true
	return s
}

// split returns the fields of a line. The next call to split overwrites them.
func (s *splitter) split(line string) ([]string, error) {
	if !strings.Contains(line, `"`) {
		return strings.Split(line, ","), nil
	}
	s.from.Reset(line)
	fields, err := s.csv.Read()
	if err != nil {
		return nil, quoteError(line, err)
	}
	return fields, nil
}

// quoteError returns errOpen if encoding/csv found no closing quote at the end of the line.
func quoteError(line string, err error) error {
	if wrong := (*csv.ParseError)(nil); errors.As(err, &wrong) && wrong.Column > len(line) {
		return errOpen
	}
	return errQuotes
}

func parseUnits(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a number of units; write 1 or more", s)
	}
	return n, nil
}

// isHeader reports whether a line contains column names instead of values.
func isHeader(line string) bool {
	first, _, found := strings.Cut(line, ",")
	return found && !strings.ContainsAny(first, "0123456789")
}

// csvLines reads CSV lines below a header, which names the columns. The header is the first
// non-empty line.
type csvLines struct {
	named
	*splitter
	line   string // the header
	header []string
}

// asCSV returns the format of a log that begins with the given line. It returns nil unless the line
// is a header with a column for the time.
func asCSV(line string, o Options, dated bool) format {
	c := newCSV(line, o)
	if c == nil || dated {
		return nil
	}
	if c.timeField == "" {
		c.timeField = firstOf(row{c.header, c.header}, timeNames)
	}
	if !slices.Contains(c.header, c.timeField) {
		return nil
	}
	return c
}

// newCSV returns the format of a log that begins with the given header, or nil if line is not a
// header. The time can be in any column.
func newCSV(line string, o Options) *csvLines {
	s := newSplitter()
	names, err := s.split(line)
	if err != nil || len(names) < 2 || !isHeader(line) {
		return nil
	}
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
		if names[i] == "" || strings.ContainsAny(name, "=:[]{}") {
			return nil
		}
	}
	return &csvLines{newNamed(o, false), s, line, slices.Clone(names)}
}

// byDefault returns the first well-known name in the header. If there is none, it returns the first
// column other than the time.
func (c *csvLines) byDefault(string) string {
	if c.event == "" {
		c.event = firstOf(row{c.header, c.header}, eventNames)
	}
	if c.event == "" {
		others := slices.DeleteFunc(slices.Clone(c.header), func(name string) bool { return name == c.timeField || name == unitsField })
		c.event = append(others, defaultEvent)[0]
	}
	return c.event
}

func (c *csvLines) fields() []string { return c.header }

func (c *csvLines) read(line, field string) (Attempt, error) {
	if line == c.line {
		return Attempt{}, errNoAttempt
	}
	fields, err := c.split(line)
	if err != nil {
		return Attempt{}, err
	}
	if len(fields) > len(c.header) {
		return Attempt{}, fmt.Errorf("fields between commas: %d; the header names %d", len(fields), len(c.header))
	}
	return c.named.read(row{c.header, fields}, field)
}

// row is a line together with its header. Missing columns at the end of the line are empty.
type row struct{ header, fields []string }

func (r row) field(name string) (string, bool, error) {
	i := slices.Index(r.header, name)
	if i < 0 {
		return "", false, nil
	}
	if i >= len(r.fields) {
		return "", true, nil
	}
	return strings.TrimSpace(r.fields[i]), true, nil
}

func (r row) names() []string { return r.header }
