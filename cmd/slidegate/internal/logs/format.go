package logs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// format reads lines of one kind of log. It can keep state from line to line, so it serves one
// file.
type format interface {
	// fields returns the names that By may have in this format, or nil if it may have any.
	fields() []string
	// byDefault returns the event field for use if By names none.
	byDefault(line string) string
	// read parses a line. Event is the value of the field, which may be empty: the caller checks that.
	// Account is set if the format knows who logs in. With the field anyField, every line that has a
	// time is an attempt. For a line that is not an attempt, the error wraps errNoAttempt. Any other
	// error says why the line cannot be read.
	read(line, field string) (Attempt, error)
}

// voters is a format whose first lines choose the event field. Each line votes for the first
// well-known name that it has.
type voters interface {
	vote(line string) string
	setEvent(field string)
}

// anyField makes a format parse only the time.
const anyField = ""

var errNoAttempt = errors.New("no attempt")

// formats holds the known formats, in the order in which they are tried. Each function returns nil
// if the line has another format. dated means that an envelope has the times of the lines.
var formats = []func(line string, o Options, dated bool) format{asJSON, asSyslog, asWeb, asALB, asLogfmt, asGoLog, asColumns, asCSV}

// recognise returns the format of a file with the given line, or nil if the line does not reveal
// it.
func recognise(line string, o Options, dated bool) format {
	if o.TimeRegex != nil {
		return asText(line, o, dated)
	}
	for _, as := range formats {
		if f := as(line, o, dated); f != nil {
			return f
		}
	}
	return nil
}

// ifRead returns a format if it can read the line, or nil.
func ifRead(f format, line string) format {
	if _, err := f.read(line, anyField); err != nil {
		return nil
	}
	return f
}

// has reports whether By may name a field.
func has(f format, field string) bool {
	return f.fields() == nil || slices.Contains(f.fields(), field)
}

// checkOptions returns an error for options that the format of the file does not support.
func (o Options) checkOptions(name string, f format) error {
	_, named := f.(interface{ eventField() string })
	_, isText := f.(*freeText)
	if o.TimeField != "" && !named {
		return fmt.Errorf("%s has no named fields, so there is none named %q; leave out --time-field", name, o.TimeField)
	}
	if o.TimeFormat != "" && !named && !isText {
		return fmt.Errorf("%s has times in a known format; leave out --time-format, or add --time-regex", name)
	}
	if _, sshd := f.(*syslog); o.Accounts && !sshd {
		return fmt.Errorf("%s is not a log of sshd, so it lacks the address, the account or the result of each login; name a log of sshd, or leave out --login", name)
	}
	return o.checkField(name, f, isText)
}

// checkField returns an error for a field that no line can have.
func (o Options) checkField(name string, f format, isText bool) error {
	switch field := o.By.field(f, ""); {
	case o.By.Pattern != nil || o.By.Field == "" && !isText:
		return nil
	case isText:
		return fmt.Errorf("%s: %w", name, errByGroup)
	case !has(f, field):
		return fmt.Errorf(`%s has no field %q; --by may be one of %s there, or a regular expression with a group, as in "user=(\S+)"`, name, field, strings.Join(f.fields(), ", "))
	}
	return nil
}

// account returns the account of an attempt, if Options.Accounts is set. It does not keep the line
// in memory.
func (o Options) account(a Attempt) string {
	if !o.Accounts {
		return ""
	}
	return strings.Clone(a.Account)
}
