package inspect

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

// Reset represents "slidegate reset" and its flags.
type Reset struct {
	Subject
	Args struct {
		Name  flags.Argument `arg:"" help:"The Name in the limiter's Config."`
		Event flags.Argument `arg:"" help:"The event key, as the service passes it to Allow. Write -- before one that begins with a dash."`
	} `embed:""`
	Yes bool `help:"Delete without asking."`
}

// Help returns the text of slidegate reset --help.
func (Reset) Help() string {
	return "Shows what is stored for the event, asks for confirmation, and deletes its key from Redis. The event then has the full budget of every limit. Other events and other limiters keep their counts.\n\n" +
		"    slidegate reset login 198.51.100.7"
}

// Run removes the event's counts once the user confirms.
func (c *Reset) Run(ctx context.Context, s cli.Streams) error {
	c.Name, c.Event = string(c.Args.Name), string(c.Args.Event)
	if !c.Yes && !output.IsTerminal(s.In) {
		return errors.New("nothing was deleted: reset asks for confirmation, and the standard input is not a terminal; add --yes to delete without confirmation")
	}
	client, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	st, err := c.fetchState(ctx, client, nil, s.Now)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(s.Out, st.summary(output.ScreenOf(s.Out))); err != nil || !st.Stored {
		return err
	}
	if yes, err := c.confirm(ctx, s); err != nil || !yes {
		return err
	}
	if err := c.forget(ctx, client); err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.Out, output.ScreenOf(s.Out).Bold("Forgotten."))
	return err
}

// summary returns a sentence that says what Redis stores.
func (st *State) summary(screen output.Screen) string {
	if !st.Stored {
		return fmt.Sprintf("Nothing is stored under the key %s on %s.\nIf the service still denies the event, check NAME, EVENT, --ar1, --pace,\n--inflight and --secret-file; or its in-memory fallback is deciding.\n", st.Key, st.Redis)
	}
	var counts []string
	for _, sec := range st.Limits {
		switch {
		case sec.Level != nil:
			counts = append(counts, fmt.Sprintf("level %.2f of %s", sec.Level.Level, formatDuration(sec.per)))
		case st.Places != nil:
			counts = append(counts, units(sec.Used)+" in "+output.Count(len(st.Leases), "lease"))
		default:
			counts = append(counts, fmt.Sprintf("%s in %s", units(sec.Used), formatDuration(sec.per)))
		}
	}
	if st.Turns != nil && st.PausedFor > 0 {
		counts = append(counts, "a pause that ends "+formatIn(st.PausedFor, st.At))
	}
	if len(counts) == 0 {
		counts = []string{"no unit"} // all turns of package pace have been cancelled
	}
	return screen.Wrap(fmt.Sprintf("%s on %s counts %s.", st.Key, st.Redis, strings.Join(counts, ", "))) + "\n"
}

// maxAnswer is the maximum number of bytes of an answer that confirm reads.
const maxAnswer = 1024

// confirm asks the user to confirm the reset, unless --yes is set. It returns an error if ctx is
// done before the user has answered.
func (c *Reset) confirm(ctx context.Context, s cli.Streams) (yes bool, err error) {
	if c.Yes {
		return true, nil
	}
	_, _ = fmt.Fprintf(s.Err, "Forget %s in %s? [y/N] ", logs.Shown(c.Event), c.Name)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(io.LimitReader(s.In, maxAnswer)).ReadString('\n') // end of input means no
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
		return false, errors.New("interrupted; nothing was deleted")
	}
}
