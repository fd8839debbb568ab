package logs

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// envelope removes what a container engine adds around each line of a program: a time, and
// sometimes more. The inner lines can have any format, and do not need times of their own.
type envelope func(line string) (c content, ok bool)

// content is the line inside an envelope.
type content struct {
	text   string
	at     time.Time
	stream string // stdout or stderr, if the envelope says so
	cut    bool   // the next line of this stream continues this one
}

var (
	errEnvelope  = errors.New("its format differs from the Docker format of the other lines")
	errContinues = fmt.Errorf("%w: it continues a line that was too long for Docker", errNoAttempt)
)

// wrapping is the envelope of the lines of a log. If the first lines have an envelope, all lines
// must have the same kind.
type wrapping struct {
	envelope envelope        // nil if the lines have no envelope
	cut      map[string]bool // the streams whose last line was cut off
}

// unwrap removes the envelope from a line.
func (w *wrapping) unwrap(l logLine) logLine {
	if w.envelope == nil || l.err != nil {
		return l
	}
	c, ok := w.envelope(l.text)
	switch {
	case !ok:
		l.err = errEnvelope
		return l
	case w.cut[c.stream]:
		l.err = errContinues
	}
	if l.text, l.at = c.text, c.at; c.cut || l.err != nil {
		w.setCut(c)
	}
	return l
}

// setCut records whether the next line of the same stream continues c.
func (w *wrapping) setCut(c content) {
	if w.cut == nil {
		w.cut = map[string]bool{}
	}
	w.cut[c.stream] = c.cut
}

// envelopeOf returns the kind of envelope that a line has, or nil if it has none.
func envelopeOf(line string) envelope {
	for _, open := range []envelope{openDockerFile, openCRI} {
		if _, ok := open(line); ok {
			return open
		}
	}
	if isDockerLogs(line) {
		return openStamped
	}
	return nil
}

// openDockerFile unwraps a line written by Docker's json-file driver, such as {"log":"a
// line\n","stream":"stdout","time":"2025-03-04T05:06:07.089Z"}. Docker splits lines longer than 16
// KiB. Only the last part then has a newline at its end.
func openDockerFile(line string) (c content, ok bool) {
	if !strings.HasPrefix(line, `{"log":`) || !gjson.Valid(line) {
		return c, false
	}
	v := gjson.GetMany(line, "log", "stream", "time")
	c = content{text: strings.TrimRight(v[0].Str, "\r\n"), stream: v[1].Str, cut: !strings.HasSuffix(v[0].Str, "\n")}
	c.at, ok = parseRFC3339(v[2].Str)
	return c, ok && v[0].Type == gjson.String && v[1].Type == gjson.String
}

// openCRI unwraps a line stored by Kubernetes. It consists of a time, the stream, F or P for a full
// or partial line, and the program's own line.
func openCRI(line string) (c content, ok bool) {
	stamp, rest, _ := strings.Cut(line, " ")
	stream, rest, _ := strings.Cut(rest, " ")
	tag, text, _ := strings.Cut(rest, " ")
	if stream != "stdout" && stream != "stderr" || tag != "F" && tag != "P" {
		return c, false
	}
	at, ok := parseRFC3339(stamp)
	return content{text, at, stream, tag == "P"}, ok
}

// isDockerLogs reports whether a line looks like the output of docker logs -t: a time with nine
// decimal places, followed by the program's line.
func isDockerLogs(line string) bool {
	const width = len("2025-03-04T05:06:07.089000000Z")
	if len(line) < width || line[19] != '.' || line[width-1] != 'Z' || len(line) > width && line[width] != ' ' {
		return false
	}
	_, ok := parseRFC3339(line[:width])
	return ok
}

// openStamped unwraps a line that begins with a time as container engines write it. Programs that
// log such times themselves omit trailing zeros.
func openStamped(line string) (c content, ok bool) {
	stamp, text, _ := strings.Cut(line, " ")
	at, ok := parseRFC3339(stamp)
	return content{text: text, at: at}, ok
}
