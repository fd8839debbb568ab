package output

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
)

// Live shows one text after another on a terminal's alternate screen. Close restores the previous
// content of the terminal.
type Live struct {
	Signals chan os.Signal // pass each signal to Obey before the next Draw

	out *os.File
}

// NewLive switches a terminal to its alternate screen.
func NewLive(out *os.File) *Live {
	l := &Live{make(chan os.Signal, 1), out}
	notify(l.Signals)
	l.enter()
	return l
}

// Close restores the terminal.
func (l *Live) Close() {
	signal.Stop(l.Signals)
	l.leave()
}

// enter switches to the alternate screen and hides the cursor. It uses xterm's escape sequences,
// which all current terminals support.
func (l *Live) enter() { _, _ = l.out.WriteString("\x1b[?1049h\x1b[?25l") }
func (l *Live) leave() { _, _ = l.out.WriteString("\x1b[?25h\x1b[?1049l") }

// Obey handles a signal. While the program is suspended, the terminal is restored. A change of size
// needs no action, because Draw always reads the current size.
func (l *Live) Obey(s os.Signal) {
	if suspends(s) {
		l.leave()
		suspend()
		l.enter()
	}
}

// Screen describes the current state of the terminal.
func (l *Live) Screen() Screen { return ScreenOf(l.out) }

// Draw shows head, a blank line, and body. If body does not fit, Draw shows as many lines of brief,
// its shorter form, as fit.
func (l *Live) Draw(head, body, brief string) error {
	s := l.Screen()
	lines := slices.Collect(strings.Lines(head))
	room := max(1, s.Height-len(lines)-1) // with a blank line between head and body
	rest := slices.Collect(strings.Lines(body))
	if len(rest) > room {
		rest = slices.Collect(strings.Lines(brief))
	}
	if more := len(rest) - room + 1; more > 1 {
		rest = append(rest[:room-1], s.Faint(fmt.Sprintf("… %d more lines", more)))
	}
	lines = append(append(lines, "\n"), rest...)
	for i, line := range lines {
		lines[i] = crop(strings.TrimSuffix(line, "\n"), s.Width) + "\x1b[K" // clear the rest of the line
	}
	// Start at the top left, and clear the rest of the screen.
	_, err := l.out.WriteString("\x1b[H" + strings.Join(lines[:min(len(lines), max(1, s.Height))], "\n") + "\x1b[J")
	return err
}
