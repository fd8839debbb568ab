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

// watch shows the state until ctx is done, and then returns nil. After a successful first read,
// failures of Redis do not end it. On a terminal, each state replaces the previous one.
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

// print prints a state, or an error, below what was printed before.
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

// draw draws the state at the start, after each read, and whenever the terminal is resized. While
// Redis fails, the last state remains visible.
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

// drawOnce draws the last state below its headline. If the last read failed, it draws the state
// below the error instead.
func (w watcher) drawOnce(live *output.Live, st result, err error) error {
	screen := live.Screen()
	last := screen.Bold(styledHeadline(screen, st))
	if err != nil {
		last = screen.Bad(screen.Wrap(fmt.Sprintf("%v; retrying", err)))
	}
	return live.Draw(st.head()+last+"\n", st.body(screen, false), st.body(screen, true))
}
