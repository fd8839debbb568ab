package output

import (
	"strings"
	"testing"
)

// TestCrop checks that a terminal's lines are cut by columns rather than bytes or runes, and that
// those of a pipe are whole.
func TestCrop(t *testing.T) {
	for _, tt := range []struct {
		line  string
		width int
		want  string
	}{
		{"", 3, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc"},
		{"日本語", 5, "日本"},
		{"e\u0301e\u0301e\u0301", 2, "e\u0301e\u0301"},
	} {
		if got := (Screen{Width: tt.width, Terminal: true}).Crop(tt.line); got != tt.want {
			t.Errorf("%q cut to %d is %q, not %q", tt.line, tt.width, got, tt.want)
		}
		if got := (Screen{Width: tt.width}).Crop(tt.line); got != tt.line {
			t.Errorf("in a pipe: %q", got)
		}
	}
}

// TestWrap checks that words are not broken, and that only a terminal gets several lines.
func TestWrap(t *testing.T) {
	s := Screen{Width: 10, Terminal: true}
	for text, want := range map[string]string{
		"":                       "",
		"one two three":          "one two\nthree",
		"one two th":             "one two th",
		"incomprehensibilities":  "incomprehensibilities",
		"a incomprehensibilitie": "a\nincomprehensibilitie",
	} {
		if got := s.Wrap(text); got != want {
			t.Errorf("%q, not %q", got, want)
		}
		if got := (Screen{Width: 10}).Wrap(text); got != text {
			t.Errorf("in a pipe: %q", got)
		}
	}
	limits := Wrapped([]string{"1/5s", "10/1h", "20/1d"}, ", ", 12)
	if got := strings.Join(limits, "\n"); got != "1/5s, 10/1h,\n20/1d" {
		t.Errorf("%q", got)
	}
}

// TestFit checks that Fit leaves a line for the prompt, then removes blank lines, and shows all
// rows if the height is unlimited.
func TestFit(t *testing.T) {
	text := func(rows int) string { return "head\n\n" + strings.Repeat("row\n", rows) + "\nend\n" }
	for height, want := range map[int]string{0: text(9), 20: text(9), 10: text(5), 6: text(1), 5: "head\nrow\n\nend\n", 4: "head\nrow\nend\n", 1: "head\nrow\nend\n"} {
		if got := (Screen{Width: 80, Height: height}).Fit(9, text); got != want {
			t.Errorf("%d lines: %q, not %q", height, got, want)
		}
	}
	long := func(rows int) string { return strings.Repeat(strings.Repeat("x", 81)+"\n", rows) }
	if got := (Screen{Width: 80, Height: 7}).Fit(9, long); got != long(3) {
		t.Errorf("lines that take two: %d", strings.Count(got, "\n"))
	}
}

// TestEnd checks that a command that is too long for a line continues on the next line in a way
// that a shell accepts.
func TestEnd(t *testing.T) {
	var b strings.Builder
	Screen{Width: 40, Colours: true}.End(&b, "1 of 2 denied", "replay", "--by user", "--limit 5/1h,20/1d", "auth.log")
	if want := "\n\x1b[1m1 of 2 denied\x1b[22m\nnext: slidegate replay --by user \\\n      --limit 5/1h,20/1d auth.log\n"; b.String() != want {
		t.Errorf("%q, not %q", b.String(), want)
	}
}
