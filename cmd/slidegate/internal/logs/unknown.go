package logs

import (
	"fmt"
	"slices"
)

// anyLines names the flags for reading lines of any format.
const anyLines = `to read lines of any format, write --by 'from ([0-9a-f.:]+)' with a group around what to limit by, ` +
	`and, if their time is not found, --time-regex '^\[(.*?)\]' --time-format '02.01.2006 15:04:05'`

// unrecognised returns an error for a file of unknown format. It returns nil for an empty file.
func (f *file) unrecognised() error {
	f.findHeader()
	i := slices.IndexFunc(f.waiting, func(l logLine) bool { return l.number != f.header && !isEmpty(l.text) || l.err != nil })
	if i < 0 {
		f.r.NoAttempt += len(f.waiting)
		f.waiting = nil
		return nil
	}
	for _, l := range f.waiting[i:] {
		if saidBySSHD.MatchString(l.text) {
			return fmt.Errorf("%q is a log of sshd, but in its line %d, %.60q, %w", f.name, l.number, l.text, errHeader)
		}
	}
	return f.unknown(f.waiting[i])
}

// unknown returns an error that quotes a line of unknown format.
func (f *file) unknown(l logLine) error {
	if l.err != nil {
		return fmt.Errorf("%q has an unknown format: its line %d cannot be read: %w; name a log with one line for each attempt", f.name, l.number, l.err)
	}
	line := fmt.Sprintf("%q has an unknown format (slidegate help replay lists the known ones): its line %d", f.name, l.number)
	if f.r.options.TimeRegex == nil {
		return fmt.Errorf("%s is %.60q; %s", line, l.text, anyLines)
	}
	_, err := (&freeText{where: f.r.options.TimeRegex, layout: f.r.options.TimeFormat}).at(l.text)
	return fmt.Errorf("%s, %.60q, cannot be read with the given flags: %w", line, l.text, err)
}
