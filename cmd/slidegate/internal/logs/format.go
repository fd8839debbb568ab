package logs

import (
	"errors"
	"fmt"
	"strings"
)

// A format reads lines of one kind of log. It holds what it must remember from line to line, and serves one file.
type format interface {
	// fields are the names that By may have here, for a sentence.
	fields() string
	// has reports whether By may name the field.
	has(field string) bool
	// byDefault returns the field that By means if it names none.
	byDefault(line string) string
	// read takes a line apart. Event is the value of the field, or empty if the field is: that a line has to have an event
	// is for others to see to. A line that is no attempt is an error that wraps errNoAttempt; any other error says
	// why the line cannot be read. Where the format knows who logs in, Account is that. With the field anyField, every line that has a time is an attempt.
	read(line, field string) (Attempt, error)
}

// voters are formats whose first lines choose the field that is the event: each votes for the first well-known name that it has.
type voters interface {
	vote(line string) string
	elected(field string)
}

// anyField asks a format for the time alone.
const anyField = ""

var errNoAttempt = errors.New("no attempt")

// formats are the kinds of logs, in the order in which a line is tried. Each returns nil for a line that is of another kind. The lines
// are dated if an envelope has their times.
var formats = []struct {
	name string
	of   func(line string, o Options, dated bool) format
}{
	{"JSON lines", asJSON},
	{"syslog", asSyslog},
	{"web access log", asWeb},
	{"AWS ALB", asALB},
	{"logfmt", asLogfmt},
	{"Go log", asGoLog},
	{"time,event", asColumns},
	{"CSV with a header", asCSV},
}

// recognise returns the format of files that hold such a line, or nil if the line does not tell.
func recognise(line string, o Options, dated bool) format {
	if o.TimeRegex != nil {
		return asText(line, o, dated)
	}
	for _, kind := range formats {
		if f := kind.of(line, o, dated); f != nil {
			return f
		}
	}
	return nil
}

// checkOptions refuses options that the format of the file has no use for.
func (o Options) checkOptions(name string, f format) error {
	_, named := f.(interface{ hasTimeField() })
	_, isText := f.(*freeText)
	if o.TimeField != "" && !named {
		return fmt.Errorf("%s has no fields with names, and so none that is %q; leave out --time-field", name, o.TimeField)
	}
	if o.TimeFormat != "" && !named && !isText {
		return fmt.Errorf("%s has times of a known form; leave out --time-format, or write --time-regex too", name)
	}
	if _, sshd := f.(*syslog); o.Accounts && !sshd {
		return fmt.Errorf("%s is no log of sshd, and so does not tell the address, the account and the result of each login; name a log of sshd, or leave out --login", name)
	}
	return o.checkField(name, f, isText)
}

// checkField refuses a field that no line can have.
func (o Options) checkField(name string, f format, isText bool) error {
	switch field := o.By.field(f, ""); {
	case o.By.Pattern != nil || o.By.Field == "" && !isText:
		return nil
	case isText:
		return fmt.Errorf("%s: %w", name, errByGroup)
	case !f.has(field):
		return fmt.Errorf(`%s has no field %q; --by may be one of %s there, or a regular expression with a group, as in "user=(\S+)"`, name, field, f.fields())
	}
	return nil
}

// account is that of an attempt, if it is asked for. It does not keep the line in memory.
func (o Options) account(a Attempt) string {
	if !o.Accounts {
		return ""
	}
	return strings.Clone(a.Account)
}
