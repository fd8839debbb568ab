package logs

import (
	"errors"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// An envelope is what Docker puts around the lines of a program: a time, and sometimes more. The lines in it may be of any format, and
// need no time of their own.
type envelope func(line string) (text string, at time.Time, ok bool)

var (
	envelopes   = []envelope{openDockerFile, openDockerLogs}
	errEnvelope = errors.New("it is not as Docker writes the others")
)

// envelopeOf returns the envelope of a line, or nil if it has none.
func envelopeOf(line string) envelope {
	for _, open := range envelopes {
		if _, _, ok := open(line); ok {
			return open
		}
	}
	return nil
}

// openDockerFile opens a line of Docker's json-file driver: {"log":"a line\n","stream":"stdout","time":"2025-03-04T05:06:07.089Z"}.
func openDockerFile(line string) (text string, at time.Time, ok bool) {
	if !strings.HasPrefix(line, `{"log":`) || !gjson.Valid(line) {
		return "", at, false
	}
	v := gjson.GetMany(line, "log", "stream", "time")
	at, ok = parseRFC3339(v[2].Str)
	return strings.TrimRight(v[0].Str, "\r\n"), at, ok && v[0].Type == gjson.String && v[1].Type == gjson.String
}

// openDockerLogs opens a line of docker logs -t: a time with nine digits after the second, and the line.
func openDockerLogs(line string) (text string, at time.Time, ok bool) {
	const width = len("2025-03-04T05:06:07.089000000Z")
	if len(line) < width || line[19] != '.' || line[width-1] != 'Z' || len(line) > width && line[width] != ' ' {
		return "", at, false
	}
	at, ok = parseRFC3339(line[:width])
	return strings.TrimPrefix(line[width:], " "), at, ok
}
