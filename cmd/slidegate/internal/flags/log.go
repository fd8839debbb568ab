package flags

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

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

// Share is the value of the flag --delay-honest.
type Share struct {
	Of   float64 // from 0 to 1
	Text string  // empty if the flag is not given
}

// DefaultShare is the share used if --delay-honest is not given.
var DefaultShare = Share{Of: 0.001, Text: "0.1%"}

// Decode parses the flag.
func (s *Share) Decode(c *kong.DecodeContext) error {
	var text Text
	if s.Text != "" {
		return errTwice
	}
	if err := text.Decode(c); err != nil {
		return err
	}
	number, isPercent := strings.CutSuffix(string(text), "%")
	of, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !isPercent || !(of >= 0 && of <= 100) {
		return fmt.Errorf("%q is not a share; write one from 0%% to 100%%, as in %s", text, DefaultShare.Text)
	}
	s.Of, s.Text = of/100, string(text)
	return nil
}
