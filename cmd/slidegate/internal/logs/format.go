package logs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// format reads lines of one kind of log. It can keep state between lines, so each file needs its
// own format.
type format interface {
	// fields returns the names that By may use with this format, or nil if By may use any name.
	fields() []string
	// byDefault returns the event field to use if By does not name one.
	byDefault(line string) string
	// read parses a line. Event is the value of the given field. It may be empty; the caller checks
	// that. Account is set if the format knows who logs in. If field is anyField, every line that
	// has a time is an attempt. If the line is not an attempt, the error wraps errNoAttempt. Any
	// other error says why the line cannot be read.
	read(line, field string) (Attempt, error)
}

// voters is a format whose event field is chosen by the first lines. Each line votes for the first
// well-known name that it has.
type voters interface {
	vote(line string) string
	setEvent(field string)
}

// anyField makes a format parse nothing but the time.
const anyField = ""

var errNoAttempt = errors.New("no attempt")

// formats lists the known formats in the order in which they are tried. Each function returns nil
// if the line has a different format. If dated is set, the time of each line is in an envelope.
var formats = []func(line string, o Options, dated bool) format{asJSON, asSyslog, asWeb, asALB, asLogfmt, asGoLog, asColumns, asCSV}

// recognise returns the format of a file that contains the given line, or nil if the line does not
// reveal the format.
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

// ifRead returns f if it can read the line, or nil otherwise.
func ifRead(f format, line string) format {
	if _, err := f.read(line, anyField); err != nil {
		return nil
	}
	return f
}

// has reports whether By may use the given field with f.
func has(f format, field string) bool {
	return f.fields() == nil || slices.Contains(f.fields(), field)
}

// checkOptions returns an error if the file's format does not support the options.
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

// checkField returns an error if By uses a field that no line can have.
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

// account returns the account of an attempt if Options.Accounts is set. The result does not keep
// the line in memory.
func (o Options) account(a Attempt) string {
	if !o.Accounts {
		return ""
	}
	return strings.Clone(a.Account)
}
