package main

import (
	"context"
	_ "embed" // for the help
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/redis/rueidis"
	"golang.org/x/term"
)

//go:embed inspect.txt
var inspectHelp string

// Help is shown by slidegate inspect --help.
func (inspectCommand) Help() string { return inspectHelp }

// inspectCommand is the command line of inspect.
type inspectCommand struct {
	subject
	Limits limits `name:"limit" placeholder:"MAX/PER" help:"A limit of the service, such as 5/1h: shows what is free, too. Repeat it, or write 1/5s,5/1h, for more."`
	JSON   bool   `name:"json" help:"Print one JSON object."`
	Watch  bool   `help:"Look again every second, until interrupted."`
	Every  pause  `placeholder:"5s" help:"As --watch, but look so often."`
}

// pause is the time between two looks.
type pause time.Duration

// Decode reads the flag.
func (p *pause) Decode(c *kong.DecodeContext) error {
	if isMissing(c) {
		return errors.New("its value is missing; write one, as in 5s")
	}
	if *p != 0 {
		return errTwice
	}
	text := c.Scan.Pop().String()
	d, err := time.ParseDuration(text)
	if err != nil || d < 100*time.Millisecond {
		return fmt.Errorf("%q is no time between two looks; write one of at least 100ms, as in 5s", text)
	}
	*p = pause(d)
	return nil
}

// Run shows the state of the event, once or again and again.
func (c *inspectCommand) Run(ctx context.Context, s streams) error {
	client, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if c.Watch && c.Every == 0 {
		c.Every = pause(time.Second)
	}
	if c.Every > 0 {
		return c.watch(ctx, client, s)
	}
	return c.show(ctx, client, s)
}

// watch shows the state until ctx ends, which is no error. Nor is it one if Redis fails for a while, but for the first look.
func (c *inspectCommand) watch(ctx context.Context, client rueidis.Client, s streams) error {
	tick := time.NewTicker(time.Duration(c.Every))
	defer tick.Stop()
	for first := true; ; first = false {
		err := c.show(ctx, client, s)
		if err != nil && first && ctx.Err() == nil {
			return err
		}
		if err != nil && ctx.Err() == nil {
			_, _ = fmt.Fprintf(s.err, "slidegate: %v; looking again\n", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// show prints the state once.
func (c *inspectCommand) show(ctx context.Context, client rueidis.Client, s streams) error {
	st, err := c.look(ctx, client, c.Limits, s.now)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(s.out, st)
	}
	_, err = io.WriteString(s.out, c.screen(st.text(widthOf(s.out)), s.out))
	return err
}

// screen is a text as a watch prints it: on a terminal in place of the last one, elsewhere apart from it.
func (c *inspectCommand) screen(text string, out io.Writer) string {
	switch {
	case c.Every == 0:
		return text
	case isTerminal(out):
		return "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J" // home, and clear what is right of it and below
	}
	return text + "\n"
}

// isTerminal reports whether somebody sits at the other end.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
