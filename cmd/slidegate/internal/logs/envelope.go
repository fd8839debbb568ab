package logs

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// envelope removes what a container engine writes around each line of a program: a time, and
// sometimes more. The lines inside can have any format, and do not need their own times.
type envelope func(line string) (c content, ok bool)

// content is the line inside an envelope.
type content struct {
	text   string
	at     time.Time
	stream string // stdout or stderr, if the envelope says so
	cut    bool   // the next line of this stream continues this line
}

var (
	errEnvelope  = errors.New("its format differs from the Docker format of the other lines")
	errContinues = fmt.Errorf("%w: it continues a line that was too long for Docker", errNoAttempt)
)

// wrapping is the envelope of a log. If the first lines have one, all lines must have the same one.
type wrapping struct {
	envelope envelope        // nil if there is none
	cut      map[string]bool // the streams whose last line was cut
}

// unwrap removes the envelope of a line.
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

// setCut records whether the next line of a stream continues this one.
func (w *wrapping) setCut(c content) {
	if w.cut == nil {
		w.cut = map[string]bool{}
	}
	w.cut[c.stream] = c.cut
}

// envelopeOf returns the envelope of a line, or nil if it has none.
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

// openDockerFile unwraps a line of Docker's json-file driver: {"log":"a
// line\n","stream":"stdout","time":"2025-03-04T05:06:07.089Z"}. Docker splits lines of more than 16
// KiB. Only the last part contains the end of the line.
func openDockerFile(line string) (c content, ok bool) {
	if !strings.HasPrefix(line, `{"log":`) || !gjson.Valid(line) {
		return c, false
	}
	v := gjson.GetMany(line, "log", "stream", "time")
	c = content{text: strings.TrimRight(v[0].Str, "\r\n"), stream: v[1].Str, cut: !strings.HasSuffix(v[0].Str, "\n")}
	c.at, ok = parseRFC3339(v[2].Str)
	return c, ok && v[0].Type == gjson.String && v[1].Type == gjson.String
}

// openCRI unwraps a line as stored by Kubernetes: a time, the stream, F or P for a full or partial
// line, and the line.
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

// isDockerLogs reports whether a line has the format of docker logs -t: a time with nine digits
// after the second, and the line.
func isDockerLogs(line string) bool {
	const width = len("2025-03-04T05:06:07.089000000Z")
	if len(line) < width || line[19] != '.' || line[width-1] != 'Z' || len(line) > width && line[width] != ' ' {
		return false
	}
	_, ok := parseRFC3339(line[:width])
	return ok
}

// openStamped unwraps a line that begins with a time. Programs that write such times themselves
// omit trailing zeros.
func openStamped(line string) (c content, ok bool) {
	stamp, text, _ := strings.Cut(line, " ")
	at, ok := parseRFC3339(stamp)
	return content{text: text, at: at}, ok
}
