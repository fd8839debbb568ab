// Package flags defines the types of flags and arguments. Each type has a method Decode, which
// parses the value for kong and explains what is wrong with it. Many of the types embed a type of
// the package that uses the value.
package flags

import (
	"errors"
	"strings"

	"github.com/alecthomas/kong"
)

var errTwice = errors.New("it is given twice; choose one")

// Text is a string that must not be empty. An empty value usually comes from an unset shell
// variable.
type Text string

// Decode takes the value unchanged. kong itself would alter a file name that is not UTF-8.
func (t *Text) Decode(c *kong.DecodeContext) error {
	if isMissing(c) {
		return errors.New("its value is missing; write one, or leave out the flag")
	}
	if *t != "" {
		return errTwice
	}
	text, ok := c.Scan.Pop().Value.(string)
	if !ok || text == "" {
		return errors.New("its value is empty; write one, or leave it out")
	}
	*t = Text(text)
	return nil
}

// Argument is the name of a limiter, or an event. It may contain arbitrary bytes.
type Argument string

// Decode parses the argument.
func (a *Argument) Decode(c *kong.DecodeContext) error {
	text, _ := c.Scan.Pop().Value.(string)
	if text == "" {
		return errors.New("it is empty; write the one that the service uses")
	}
	*a = Argument(text)
	return nil
}

// isMissing reports whether a flag was given without a value.
func isMissing(c *kong.DecodeContext) bool {
	return c.Scan.Peek().InferredType().IsAny(kong.EOLToken, kong.FlagToken)
}

// value returns a flag's value. If it is missing, the error says what to write.
func value(c *kong.DecodeContext, hint string) (string, error) {
	if isMissing(c) {
		return "", errors.New("its value is missing; write " + hint)
	}
	return c.Scan.Pop().String(), nil
}

// eachValue calls add for each value in a comma-separated list. Empty values are errors, because
// they usually come from an unset shell variable.
func eachValue(c *kong.DecodeContext, example string, add func(string) error) error {
	list, err := value(c, "one, as in "+example)
	if err != nil {
		return err
	}
	for s := range strings.SplitSeq(list, ",") {
		if err := add(s); err != nil {
			return err
		}
	}
	return nil
}
