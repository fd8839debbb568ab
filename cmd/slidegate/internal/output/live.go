package output

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
)

// Live is a terminal whose alternate screen shows one text after the other. Close gives back what it
// showed before.
type Live struct {
	Signals chan os.Signal // what Obey is to be called with, before the next Draw

	out *os.File
}

// NewLive takes over a terminal.
func NewLive(out *os.File) *Live {
	l := &Live{make(chan os.Signal, 1), out}
	notify(l.Signals)
	l.enter()
	return l
}

// Close gives the terminal back.
func (l *Live) Close() {
	signal.Stop(l.Signals)
	l.leave()
}

// The sequences are those of xterm, which all terminals of today know: the alternate screen, and the
// cursor.
func (l *Live) enter() { _, _ = l.out.WriteString("\x1b[?1049h\x1b[?25l") }
func (l *Live) leave() { _, _ = l.out.WriteString("\x1b[?25h\x1b[?1049l") }

// Obey does what a signal asks for: to give the terminal back while the program is stopped. That the
// size has changed, the next Draw sees.
func (l *Live) Obey(s os.Signal) {
	if suspends(s) {
		l.leave()
		suspend()
		l.enter()
	}
}

// Screen returns the screen as it is now.
func (l *Live) Screen() Screen { return ScreenOf(l.out) }

// Draw shows a head and below it a body, of which brief is a shorter form, as much of it as there is
// room for.
func (l *Live) Draw(head, body, brief string) error {
	s := l.Screen()
	lines := slices.Collect(strings.Lines(head))
	room := max(1, s.Height-len(lines)-1) // a blank line is between them
	rest := slices.Collect(strings.Lines(body))
	if len(rest) > room {
		rest = slices.Collect(strings.Lines(brief))
	}
	if more := len(rest) - room + 1; more > 1 {
		rest = append(rest[:room-1], s.Faint(fmt.Sprintf("… %d more lines", more)))
	}
	lines = append(append(lines, "\n"), rest...)
	for i, line := range lines {
		lines[i] = crop(strings.TrimSuffix(line, "\n"), s.Width) + "\x1b[K" // clear what is right of it
	}
	_, err := l.out.WriteString("\x1b[H" + strings.Join(lines[:min(len(lines), max(1, s.Height))], "\n") + "\x1b[J") // home; clear what is below
	return err
}
