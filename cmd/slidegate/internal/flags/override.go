package flags

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"github.com/slidegate/slidegate/window"
)

// longestOverride is the longest time for which an override can last.
const longestOverride = 366 * 24 * time.Hour

// For is how long an override lasts.
type For time.Duration

// Decode parses the flag. Like a limit's Per, it accepts days and weeks.
func (f *For) Decode(c *kong.DecodeContext) error {
	text, err := value(c, "one, as in 24h")
	if err != nil {
		return err
	}
	if *f != 0 {
		return errTwice
	}
	l, err := window.ParseLimit("1/" + text)
	if err != nil || l.Resolution != 0 || l.Per < time.Second || l.Per > longestOverride {
		return fmt.Errorf("%q is not a time from 1s to 366d; write one, as in 24h or 7d", text)
	}
	*f = For(l.Per)
	return nil
}

// Short is a string of 1 to 200 bytes.
type Short string

// Decode parses the flag.
func (s *Short) Decode(c *kong.DecodeContext) error {
	const hint = `a reason, as in "ticket 4711"`
	if *s != "" {
		return errTwice
	}
	text, err := value(c, hint)
	switch {
	case err != nil:
		return err
	case text == "":
		return errors.New("its value is empty; write " + hint)
	}
	if *s = Short(text); len(text) > 200 {
		return errors.New("it has more than 200 bytes; write a shorter text, and a link to the rest")
	}
	return nil
}

// longestAuthor is the maximum number of bytes of an Author.
const longestAuthor = 64

// Author names the person or program that sets an override, in at most 64 bytes.
type Author string

// Decode parses the flag.
func (a *Author) Decode(c *kong.DecodeContext) error {
	t := Text(*a)
	if err := t.Decode(c); err != nil {
		return err
	}
	if *a = Author(t); len(t) > longestAuthor {
		return errors.New("it has more than 64 bytes; write a shorter name")
	}
	return nil
}

// OrUser returns the author or, if there is none, the value of the environment variable USER. It
// returns "" if that is too long.
func (a Author) OrUser() Author {
	if user := Author(os.Getenv("USER")); a == "" && len(user) <= longestAuthor {
		return user
	}
	return a
}
