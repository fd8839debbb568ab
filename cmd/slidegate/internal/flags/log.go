package flags

import (
	"regexp"

	"github.com/alecthomas/kong"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
)

// By is the value of the flag --by of replay.
type By struct {
	logs.By
	Text string // the value as given, for the report
}

// Decode parses the flag.
func (b *By) Decode(c *kong.DecodeContext) error {
	text, err := value(c, "one, as in user")
	if err != nil {
		return err
	}
	if b.Text != "" {
		return errTwice
	}
	b.Text = text
	b.By, err = logs.ParseBy(text)
	return err
}

// TimeRegex is the value of the flag --time-regex.
type TimeRegex struct{ *regexp.Regexp }

// Decode parses the flag.
func (r *TimeRegex) Decode(c *kong.DecodeContext) (err error) {
	var text Text
	if r.Regexp != nil {
		return errTwice
	}
	if err = text.Decode(c); err == nil {
		r.Regexp, err = logs.ParseTimeRegex(string(text))
	}
	return err
}
