package logs

import (
	"errors"
	"fmt"
	"strings"
)

// A format reads lines of one kind of log. It holds what it must remember from line to line, and serves one file.
type format interface {
	// fields are the names that By may have here, for a sentence; the first is what By means if it names none.
	fields() string
	// has reports whether By may name the field.
	has(field string) bool
	// read takes a line apart. Event is the value of the field, or empty if the field is: that a line has to have an event
	// is for others to see to. A line that is no attempt is an error that wraps errNoAttempt; any other error says
	// why the line cannot be read. Where the format knows who logs in, Account is that. With the field anyField, every line that has a time is an attempt.
	read(line, field string) (Attempt, error)
}

// anyField asks a format for the time alone.
const anyField = ""

var errNoAttempt = errors.New("no attempt")

// recognise returns the format of files that hold such a line, or nil if the line does not tell.
func recognise(line, timeField string) format {
	json := jsonLines{timeField: timeField}
	if timeField == "" {
		json.timeField = "time"
	}
	switch {
	case isJSON(line):
		return json
	case isSyslog(line):
		return &syslog{}
	case isWeb(line):
		return web{}
	case isColumns(line):
		return columns{}
	}
	return nil
}

// checkOptions refuses options that the format of the file has no use for.
func (o Options) checkOptions(name string, f format) error {
	if _, json := f.(jsonLines); o.TimeField != "" && !json {
		return fmt.Errorf("%s does not hold JSON lines, and so has no field %q; leave out --time-field", name, o.TimeField)
	}
	if _, sshd := f.(*syslog); o.Accounts && !sshd {
		return fmt.Errorf("%s is no log of sshd, and so does not tell the address, the account and the result of each login; name a log of sshd, or leave out --login", name)
	}
	if field := o.By.field(f); o.By.Pattern == nil && !f.has(field) {
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
