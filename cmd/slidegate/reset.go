package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

// resetCommand is the command line of reset.
type resetCommand struct {
	subject
	Args struct {
		Name  flags.Argument `arg:"" help:"The Name of the limiter."`
		Event flags.Argument `arg:"" help:"The event, as the service names it. One that begins with a dash comes after --."`
	} `embed:""`
	Yes bool `help:"Forget without a question."`
}

// Help is shown by slidegate reset --help.
func (resetCommand) Help() string {
	return "Shows what is stored for the event, asks, and removes its key from Redis. All limits of the limiter are then as if never used by it; other events and other limiters keep their counts.\n\n" +
		"    slidegate reset login 198.51.100.7"
}

// Run forgets the event, if that is what the user wants.
func (c *resetCommand) Run(ctx context.Context, s cli.Streams) error {
	c.Name, c.Event = c.Args.Name, c.Args.Event
	if !c.Yes && !output.IsTerminal(s.In) {
		return errors.New("nothing is forgotten: reset asks first, and the standard input is no terminal; add --yes to forget without a question")
	}
	client, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	st, err := c.look(ctx, client, nil, s.Now)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(s.Out, st.summary()); err != nil || !st.Stored {
		return err
	}
	if yes, err := c.asks(ctx, s); err != nil || !yes {
		return err
	}
	if err := c.forget(ctx, client); err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.Out, "Forgotten.")
	return err
}

// summary is what is stored, in a line.
func (st *state) summary() string {
	if !st.Stored {
		return fmt.Sprintf("Nothing is stored under the key %s on %s.\nIf the service denies the event all the same, NAME, EVENT, --ar1 or\n--secret-file are others there, or its Fallback decides.\n", st.Key, st.Redis)
	}
	var counts []string
	for _, sec := range st.Limits {
		if sec.Level != nil {
			counts = append(counts, fmt.Sprintf("level %.2f of %s", sec.Level.Level, span(sec.per)))
		} else {
			counts = append(counts, fmt.Sprintf("%s in %s", units(sec.Used), span(sec.per)))
		}
	}
	return fmt.Sprintf("%s on %s counts %s.\n", st.Key, st.Redis, strings.Join(counts, ", "))
}

// maxAnswer is the most bytes that are read of an answer.
const maxAnswer = 1024

// asks the user, unless --yes has answered. An interrupt is an answer, too.
func (c *resetCommand) asks(ctx context.Context, s cli.Streams) (yes bool, err error) {
	if c.Yes {
		return true, nil
	}
	_, _ = fmt.Fprintf(s.Err, "Forget %s in %s? [y/N] ", logs.Shown(string(c.Event)), c.Name)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(io.LimitReader(s.In, maxAnswer)).ReadString('\n') // the end is no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case line := <-answer:
		if line == "y" || line == "yes" {
			return true, nil
		}
		_, err = fmt.Fprintln(s.Out, "Nothing is forgotten.")
		return false, err
	case <-ctx.Done():
		return false, errors.New("interrupted; nothing is forgotten")
	}
}
