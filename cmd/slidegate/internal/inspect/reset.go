package inspect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

// Reset is what the flags of slidegate reset ask for.
type Reset struct {
	Subject
	Yes bool // do not ask first
}

// Run forgets the event, if that is what the user wants.
func (c *Reset) Run(ctx context.Context, s cli.Streams) error {
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
	if _, err := io.WriteString(s.Out, st.summary(output.ScreenOf(s.Out))); err != nil || !st.Stored {
		return err
	}
	if yes, err := c.asks(ctx, s); err != nil || !yes {
		return err
	}
	if err := c.forget(ctx, client); err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.Out, output.ScreenOf(s.Out).Bold("Forgotten."))
	return err
}

// summary is what is stored, in a sentence.
func (st *State) summary(screen output.Screen) string {
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
	return screen.Wrap(fmt.Sprintf("%s on %s counts %s.", st.Key, st.Redis, strings.Join(counts, ", "))) + "\n"
}

// maxAnswer is the most bytes that are read of an answer.
const maxAnswer = 1024

// asks the user, unless --yes has answered. An interrupt is an answer, too.
func (c *Reset) asks(ctx context.Context, s cli.Streams) (yes bool, err error) {
	if c.Yes {
		return true, nil
	}
	_, _ = fmt.Fprintf(s.Err, "Forget %s in %s? [y/N] ", logs.Shown(c.Event), c.Name)
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
