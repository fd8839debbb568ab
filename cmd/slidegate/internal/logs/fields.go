package logs

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// record is a line with named fields.
type record interface {
	// field returns the value of the named field. If the value is an object or an array, it returns
	// an error.
	field(name string) (text string, found bool, err error)
	// names returns the names of all fields.
	names() []string
}

// named is a format whose lines have named fields. Loggers choose different names. The time field
// is determined by the first line that has a field with a well-known name for the time. The event
// field is the well-known name that most of the first lines have.
type named struct {
	timeField string // empty until known
	event     string // empty until known
	layout    string // the layout of the time; empty means any known format
	dated     bool   // times come from the envelope, so no time field is needed
}

var (
	timeNames  = []string{"time", "ts", "timestamp", "@timestamp", "t", "datetime", "date", "StartUTC"}
	eventNames = []string{
		"event", "address", "ip", "client_ip", "clientip", "clientIp", "remote_ip", "remote_addr", "remote_address", "remote", "client", "ClientHost",
		"request.client_ip", "request.remote_ip", "request.remote_addr", "client.ip", "source.ip", "user", "account",
	}
)

const (
	defaultTime  = "time"
	defaultEvent = "event"
	unitsField   = "units"
)

func newNamed(o Options, dated bool) named {
	return named{timeField: o.TimeField, layout: o.TimeFormat, dated: dated}
}

func (*named) fields() []string { return nil }

// firstOf returns the first of the given names for which r has a value, or "" if there is none.
func firstOf(r record, names []string) string {
	for _, name := range names {
		if _, found, err := r.field(name); found && err == nil {
			return name
		}
	}
	return ""
}

// setEvent sets the event field.
func (n *named) setEvent(name string) { n.event = name }

// eventField returns the event field, or "" if no line so far has had one.
func (n *named) eventField() string { return n.event }

// eventOf returns the event field of r. It is used if --by does not name a field.
func (n *named) eventOf(r record) string {
	if n.event == "" {
		n.event = firstOf(r, eventNames)
	}
	if n.event == "" {
		return defaultEvent
	}
	return n.event
}

func (n *named) read(r record, field string) (a Attempt, err error) {
	a = Attempt{Units: 1, Times: 1}
	if a.At, err = n.at(r); err != nil {
		return Attempt{}, err
	}
	if units, found, err := r.field(unitsField); err != nil {
		return Attempt{}, err
	} else if found && units != "" {
		if a.Units, err = parseUnits(wholeNumber(units)); err != nil {
			return Attempt{}, err
		}
	}
	if field == anyField {
		return a, nil
	}
	event, found, err := r.field(field)
	if err == nil && !found {
		err = missingFieldError{field, r}
	}
	a.Event = event
	return a, err
}

func (n *named) at(r record) (at time.Time, err error) {
	if n.dated {
		return at, nil
	}
	if n.timeField == "" {
		n.timeField = firstOf(r, timeNames)
	}
	name := n.timeField
	if name == "" {
		name = defaultTime
	}
	text, found, err := r.field(name)
	switch {
	case err != nil:
		return at, err
	case !found:
		return at, missingTime(r, name)
	}
	return parseLayout(n.layout, text)
}

// parseLayout parses a time in a layout of package time. If the layout is empty, it accepts all
// known formats.
func parseLayout(layout, text string) (time.Time, error) {
	if layout == "" {
		return parseAnyTime(text)
	}
	at, err := time.Parse(layout, text)
	if err != nil || !inRange(at) {
		return at, fmt.Errorf("%q does not match --time-format %q; write it as the log would show 2006-01-02 15:04:05", text, layout)
	}
	return at.UTC(), nil
}

// missingTime returns an error that lists the fields that might contain the time.
func missingTime(r record, name string) error {
	names := r.names()
	if names == nil {
		return errors.New("it is an empty object")
	}
	if times := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !holdsTime(r, name) }); len(times) > 0 {
		names = times
	}
	return fmt.Errorf("it has no field %q; choose one with --time-field: %s", name, shorten(names))
}

// holdsTime reports whether the named field contains a time from 1990 to 2099. Smaller numbers are
// unlikely to be times.
func holdsTime(r record, name string) bool {
	text, _, err := r.field(name)
	at, errTime := parseAnyTime(text)
	return err == nil && errTime == nil && at.Year() >= 1990 && at.Year() < 2100
}

// missingFieldError says that a line is not an attempt, because it lacks the field that --by names.
type missingFieldError struct {
	name   string
	record record
}

func (e missingFieldError) Error() string {
	names := e.record.names()
	if len(names) == 0 {
		return fmt.Sprintf("%v: it has no field %q, and no other; write --by as a regular expression with a group, as in %s", errNoAttempt, e.name, exampleBy)
	}
	return fmt.Sprintf("%v: it has no field %q; choose one with --by: %s", errNoAttempt, e.name, shorten(names))
}

func (missingFieldError) Unwrap() error { return errNoAttempt }

const maxNamed = 12 // the maximum number of fields that an error lists

func shorten(names []string) string {
	text := strconv.Quote(strings.Join(names[:min(maxNamed, len(names))], ", "))
	if text = text[1 : len(text)-1]; len(names) > maxNamed {
		text += ", ..."
	}
	return text
}

// logfmt reads lines of key=value pairs, as slog's TextHandler writes them:
// time=2025-03-04T05:06:07Z level=INFO msg="log in" ip=192.0.2.1.
type logfmt struct{ named }

func (l *logfmt) byDefault(line string) string { return l.eventOf(pairs(line)) }

func (l *logfmt) vote(line string) string { return firstOf(pairs(line), eventNames) }

func (l *logfmt) read(line, field string) (Attempt, error) { return l.named.read(pairs(line), field) }

// asLogfmt returns the format of a line that has its time in a pair. If the time is in an envelope,
// the line must have at least two pairs.
func asLogfmt(line string, o Options, dated bool) format {
	l := ifRead(&logfmt{newNamed(o, dated)}, line)
	if l == nil || len(pairs(line).names()) < 2 {
		return nil
	}
	return l
}

// goLog reads the output of package log: a time such as 2025/03/04 05:06:07.089, followed by a
// message. The message may end in pairs, as slog's default handler writes them. Because the message
// is not quoted, goLog rejects lines with duplicate pairs.
type goLog struct{ logfmt }

var errGoLog = errors.New("it does not begin with a time such as 2025/03/04 05:06:07")

func (l *goLog) read(line, field string) (Attempt, error) {
	at, rest, ok := cutDateTime(line)
	if !ok || line[4] != '/' {
		return Attempt{}, errGoLog
	}
	if field != anyField && strings.Count(rest, " "+field+"=") > 1 {
		return Attempt{}, fmt.Errorf("it has more than one %s=, so a client may have invented one; write --by as a regular expression with a group", field)
	}
	a, err := l.named.read(pairs(rest), field)
	a.At = at
	return a, err
}

func asGoLog(line string, _ Options, _ bool) format {
	return ifRead(&goLog{logfmt{named{dated: true}}}, line)
}

// pairs holds the key=value pairs of a line. Values may be quoted as by strconv.Quote. Other words
// are ignored.
type pairs string

// next splits off the first pair. The value is returned in its raw form. A word without = has an
// empty key.
func (p pairs) next() (key, value string, rest pairs) {
	s := strings.TrimLeft(string(p), " ")
	end := strings.IndexAny(s, "= ")
	switch {
	case strings.HasPrefix(s, `"`):
		_, after := cutQuoted(s[1:])
		return "", "", pairs(after)
	case end < 0:
		return "", "", ""
	case s[end] == ' ':
		return "", "", pairs(s[end:])
	}
	key, s = s[:end], s[end+1:]
	if strings.HasPrefix(s, `"`) {
		_, after := cutQuoted(s[1:])
		return key, s[:len(s)-len(after)], pairs(after)
	}
	value, after, _ := strings.Cut(s, " ")
	return key, value, pairs(after)
}

func (p pairs) field(name string) (text string, found bool, err error) {
	for p != "" {
		key, value, rest := p.next()
		if key == name && key != "" {
			return unquote(value), true, nil
		}
		p = rest
	}
	return "", false, nil
}

func (p pairs) names() (all []string) {
	for p != "" {
		key, _, rest := p.next()
		if key != "" && !slices.Contains(all, key) {
			all = append(all, key)
		}
		p = rest
	}
	return all
}

// unquote returns the content of a quoted value. It returns a truncated value unchanged.
func unquote(value string) string {
	if !strings.HasPrefix(value, `"`) {
		return value
	}
	if text, err := strconv.Unquote(value); err == nil {
		return text
	}
	return strings.Trim(value, `"`)
}
