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

// watcher shows a state repeatedly.
type watcher struct {
	every time.Duration
	json  bool
}

// watch shows the state until ctx ends, and then returns nil. It continues if Redis fails after the
// first read. On a terminal, each state replaces the previous one.
func (w watcher) watch(ctx context.Context, fetch func(context.Context) (result, error), s cli.Streams) error {
	st, err := fetch(ctx)
	if err != nil && ctx.Err() == nil {
		return err
	}
	if output.ScreenOf(s.Out).Live && !w.json {
		live := output.NewLive(s.Out.(*os.File))
		defer live.Close() // even after a panic
		return w.draw(ctx, fetch, live, st)
	}
	for tick := time.Tick(w.every); ctx.Err() == nil; st, err = fetch(ctx) {
		if err := w.print(s, st, err); err != nil {
			return err
		}
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
	return nil
}

// print prints a state, or an error, below the previous one.
func (w watcher) print(s cli.Streams, st result, err error) error {
	switch {
	case err != nil:
		_, _ = fmt.Fprintf(s.Err, "slidegate: %v; retrying\n", err)
		return nil
	case w.json:
		return output.JSON(s.Out, st)
	}
	_, err = io.WriteString(s.Out, st.head()+"\n"+st.body(output.ScreenOf(s.Out), false)+"\n"+st.headline()+"\n\n")
	return err
}

// draw draws the state at once, after each read, and when the size of the terminal changes. While
// Redis fails, draw keeps the last state.
func (w watcher) draw(ctx context.Context, fetch func(context.Context) (result, error), live *output.Live, st result) (err error) {
	for tick := time.Tick(w.every); ctx.Err() == nil; {
		if err := w.drawOnce(live, st, err); err != nil {
			return err
		}
		select {
		case signal := <-live.Signals:
			live.Obey(signal)
		case <-tick:
			var now result
			if now, err = fetch(ctx); err == nil {
				st = now
			}
		case <-ctx.Done():
		}
	}
	return nil
}

// drawOnce draws the last state below its headline, or below the error of the last read.
func (w watcher) drawOnce(live *output.Live, st result, err error) error {
	screen := live.Screen()
	last := screen.Bold(styledHeadline(screen, st))
	if err != nil {
		last = screen.Bad(screen.Wrap(fmt.Sprintf("%v; retrying", err)))
	}
	return live.Draw(st.head()+last+"\n", st.body(screen, false), st.body(screen, true))
}
