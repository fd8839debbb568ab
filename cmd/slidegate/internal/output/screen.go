package output

import (
	"cmp"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/fatih/color"
	"github.com/rivo/uniseg"
	"golang.org/x/term"
)

// Screen describes where a text is displayed: on a terminal, or in a file or pipe, which accepts
// text of any height but no escape sequences.
type Screen struct {
	Width    int // in columns, at least 40; 80 if the width is unknown
	Height   int // in lines; 0 if unlimited
	Terminal bool
	Colours  bool // whether it is a terminal that can show colours, and the user wants them
}

// ScreenOf describes the screen to which out writes. The screen has no colours if NO_COLOR is set
// (see https://no-color.org).
func ScreenOf(out io.Writer) Screen {
	s := Screen{Width: 80}
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	s.Terminal = true
	s.Colours = os.Getenv("TERM") != "dumb" && os.Getenv("NO_COLOR") == ""
	if width, height, err := term.GetSize(int(f.Fd())); err == nil {
		s.Width, s.Height = max(40, cmp.Or(width, s.Width)), height
	}
	return s
}

// Fit returns the text with as many rows as fit, up to most, while one line of the screen is left
// for a shell prompt. If not even one row fits, Fit also removes blank lines.
func (s Screen) Fit(most int, text func(rows int) string) string {
	for rows := most; rows > 0; rows-- {
		if t := text(rows); s.Height == 0 || s.lines(t) < s.Height {
			return t
		}
	}
	t := text(1)
	return strings.Replace(t, "\n\n", "\n", s.lines(t)-s.Height+1)
}

// lines returns how many lines of the screen a text occupies.
func (s Screen) lines(text string) (n int) {
	for line := range strings.Lines(text) {
		n += max(1, (columns(line)+s.Width-1)/s.Width)
	}
	return n
}

// End writes the last two lines of a report: the verdict, and a command to try next.
func (s Screen) End(b *strings.Builder, verdict string, next ...string) {
	b.WriteString("\n" + s.Bold(verdict) + "\n" + s.Command("next: slidegate", next) + "\n")
}

// Command formats a command line. Where the words do not fit, it inserts shell line continuations.
func (s Screen) Command(begin string, words []string) string {
	text, width := begin, columns(begin)
	for _, word := range words {
		if width += 1 + columns(word); width+len(` \`) > s.Width {
			text, width = text+" \\\n     ", len("      ")+columns(word)
		}
		text += " " + word
	}
	return text
}

// Wrap breaks text between words where it is too long for the terminal. For a file or pipe, it
// returns a single line.
func (s Screen) Wrap(text string) string {
	if !s.Terminal {
		return text
	}
	return strings.Join(Wrapped(strings.Split(text, " "), " ", s.Width), "\n")
}

// Wrapped joins words into lines of at most width columns. A wider word gets a line of its own.
func Wrapped(words []string, separator string, width int) (lines []string) {
	line := words[0]
	for _, word := range words[1:] {
		if columns(line+separator+word) > width {
			lines = append(lines, strings.TrimRight(line+separator, " "))
			line = word
			continue
		}
		line += separator + word
	}
	return append(lines, line)
}

// Bold formats text in bold.
func (s Screen) Bold(text string) string { return s.paint(text, color.Bold) }

// Faint formats text that is less important.
func (s Screen) Faint(text string) string { return s.paint(text, color.Faint) }

// Good formats text in the colour for good news.
func (s Screen) Good(text string) string { return s.paint(text, color.FgGreen) }

// Warn formats text in the colour for warnings.
func (s Screen) Warn(text string) string { return s.paint(text, color.FgYellow) }

// Bad formats text in the colour for denials and errors.
func (s Screen) Bad(text string) string { return s.paint(text, color.FgRed) }

func (s Screen) paint(text string, as ...color.Attribute) string {
	c := color.New(as...)
	if c.DisableColor(); s.Colours && text != "" {
		c.EnableColor()
	}
	return c.Sprint(text)
}

// sequence matches the escape sequences that paint adds.
var sequence = regexp.MustCompile("\x1b\\[[0-9;]*m")

// columns returns the width of text on a terminal.
func columns(text string) int { return uniseg.StringWidth(sequence.ReplaceAllString(text, "")) }

// Crop truncates a line without colours to the width of the terminal. For a file or pipe, it returns
// the whole line.
func (s Screen) Crop(line string) string {
	if !s.Terminal {
		return line
	}
	width, shown := 0, uniseg.NewGraphemes(line)
	for shown.Next() {
		if width += shown.Width(); width > s.Width {
			begin, _ := shown.Positions()
			return line[:begin]
		}
	}
	return line
}
