package inspect

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

// watch shows the state until ctx ends, which is no error. Nor is it one if Redis fails for a while,
// except at the first look. On a terminal each look takes the place of the one before.
func (c *Command) watch(ctx context.Context, look func(context.Context) (shown, error), s cli.Streams) error {
	st, err := look(ctx)
	if err != nil && ctx.Err() == nil {
		return err
	}
	if output.ScreenOf(s.Out).Live && !c.JSON {
		live := output.NewLive(s.Out.(*os.File))
		defer live.Close() // also in a panic
		return c.draw(ctx, look, live, st)
	}
	for tick := time.Tick(time.Duration(c.Every)); ctx.Err() == nil; st, err = look(ctx) {
		if err := c.print(s, st, err); err != nil {
			return err
		}
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
	return nil
}

// print prints a look below the one before, or why there is none.
func (c *Command) print(s cli.Streams, st shown, err error) error {
	switch {
	case err != nil:
		_, _ = fmt.Fprintf(s.Err, "slidegate: %v; looking again\n", err)
		return nil
	case c.JSON:
		return output.JSON(s.Out, st)
	}
	_, err = io.WriteString(s.Out, st.head()+"\n"+st.body(output.ScreenOf(s.Out), false)+"\n"+st.verdict()+"\n\n")
	return err
}

// draw draws the state, and then each look and each size of the terminal. While Redis fails, it keeps
// the last look.
func (c *Command) draw(ctx context.Context, look func(context.Context) (shown, error), live *output.Live, st shown) (err error) {
	for tick := time.Tick(time.Duration(c.Every)); ctx.Err() == nil; {
		if err := c.drawOnce(live, st, err); err != nil {
			return err
		}
		select {
		case signal := <-live.Signals:
			live.Obey(signal)
		case <-tick:
			var now shown
			if now, err = look(ctx); err == nil {
				st = now
			}
		case <-ctx.Done():
		}
	}
	return nil
}

// drawOnce draws the last look that there was, below the verdict on it, or why there is none since.
func (c *Command) drawOnce(live *output.Live, st shown, err error) error {
	screen := live.Screen()
	last := screen.Bold(judged(screen, st))
	if err != nil {
		last = screen.Bad(screen.Wrap(fmt.Sprintf("%v; looking again", err)))
	}
	return live.Draw(st.head()+last+"\n", st.body(screen, false), st.body(screen, true))
}
