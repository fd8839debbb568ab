package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// attempt is what one line of a log asks for: units of an event, at a time, and that several times over.
type attempt struct {
	at    time.Time
	event string
	units int64
	times int

	yearless bool // the line has no year
}

// A parser reads one line. A line that is no attempt is errNoAttempt; any other error says why it cannot be read.
type parser func(line string) (attempt, error)

var (
	errNoAttempt = errors.New("no attempt")
	errHeader    = errors.New("what stands before sshd is of an unknown form; write the log with journalctl -u ssh -o short-iso")
)

// A calendar reads the times of syslog lines. Traditional syslog writes no year, so the calendar keeps the log moving
// forward: a line takes the earliest year in which it is at most 30 days before the newest line so far. From December to
// January the year goes up; a smaller step back is one of the clock. The first line takes 2001, whatever today's date
// is; a 29th of February takes the next year that has one. Such times are read as UTC.
type calendar struct {
	newest  time.Time // over all lines, attempts or not
	assumed bool      // the year of the line at hand is not from the log
}

const (
	firstYear = 2001
	stepBack  = 30 * 24 * time.Hour
)

// cut splits a line at the end of its time, which ends at a space. A priority such as <38> may stand before it.
func (c *calendar) cut(line string) (at time.Time, rest string, ok bool) {
	if strings.HasPrefix(line, "<") {
		_, line, _ = strings.Cut(line, ">")
	}
	c.assumed = false
	if len(line) > 15 && line[3] == ' ' { // "Dec 10 06:55:46", perhaps with a fraction
		clock, rest, _ := strings.Cut(line[7:], " ")
		at, err := time.Parse(time.Stamp, line[:7]+clock)
		if err != nil {
			return at, rest, false
		}
		return c.withYear(at), rest, true
	}
	stamp, rest, _ := strings.Cut(line, " ")
	if at, ok = parseRFC3339(stamp); ok {
		c.newest = later(c.newest, at)
	}
	return at, rest, ok
}

func (c *calendar) withYear(at time.Time) time.Time {
	c.assumed = true
	year := firstYear
	if !c.newest.IsZero() {
		year = c.newest.Add(-stepBack).Year()
	}
	for ; ; year++ {
		t := time.Date(year, at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), time.UTC)
		if t.Month() == at.Month() && !t.Before(c.newest.Add(-stepBack)) {
			c.newest = later(c.newest, t)
			return t
		}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// parseRFC3339 also takes a zone without its colon, as journalctl -o short-iso writes it.
func parseRFC3339(s string) (time.Time, bool) {
	if len(s) < 20 || s[4] != '-' {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		at, err = time.Parse("2006-01-02T15:04:05-0700", s)
	}
	return at.UTC(), err == nil && inRange(at)
}

// inRange reports whether the limiter can decide at this time.
func inRange(at time.Time) bool { return at.UnixMilli() >= 0 && at.UnixMilli() < 1<<47 }

var (
	// syslogTag is what stands between the time and the message: the host, facility and level on some systems, the
	// program and its process.
	syslogTag = regexp.MustCompile(`^\S+ (?:<?\w+\.\w+>? )?([^\s:\[]+)(?:\[\d+\])?: `)
	// saidBySSHD ends where a message of sshd begins, whatever the header.
	saidBySSHD = regexp.MustCompile(`\bsshd(?:-session|-auth)?(?:(?:\[\d+\])?:| \d+ - -) +`)
	repeated   = regexp.MustCompile(`^message repeated ([1-9]\d{0,5}) times: \[ (.*)\]$`)

	login  = regexp.MustCompile(`^(?:Failed|Accepted) \S+ for `)
	origin = regexp.MustCompile(`^ from (\S+) port \d+(?: ssh\d)?(?: \[preauth\])?(?:: .*)?$`)
)

// sshd reads a line of a syslog, where an attempt is "Failed <method> for <user> from <address> port <port>", or
// Accepted, said by sshd or one of its processes. The event is the address.
func (c *calendar) sshd(line string) (attempt, error) {
	at, rest, ok := c.cut(line)
	tag := syslogTag.FindStringSubmatch(rest)
	if !ok || tag == nil {
		return attempt{}, headerError(line)
	}
	from, times := loginFrom(rest[len(tag[0]):])
	if from == "" || !isSSHD(tag[1]) {
		return attempt{}, errNoAttempt
	}
	address, err := netip.ParseAddr(from)
	if err != nil {
		return attempt{}, fmt.Errorf("the attempt comes from %q, which is no address", from)
	}
	return attempt{at: at, event: address.Unmap().String(), units: 1, times: times, yearless: c.assumed}, nil
}

// headerError is what a line is whose header is unknown: an attempt that cannot be read, if sshd tells of one, or none.
func headerError(line string) error {
	if said := saidBySSHD.FindStringIndex(line); said != nil {
		if from, _ := loginFrom(line[said[1]:]); from != "" {
			return errHeader
		}
	}
	return errNoAttempt
}

// loginFrom is where an attempt comes from, and how often the message repeats it, or nothing if it tells of none. Whoever
// attempts it chooses the user name, which may look like the rest of the line: so it is the last origin. After it come
// the port and, for some methods, the key.
func loginFrom(message string) (from string, times int) {
	times = 1
	if m := repeated.FindStringSubmatch(message); m != nil {
		times, _ = strconv.Atoi(m[1]) // at most six digits
		message = m[2]
	}
	head := len(login.FindString(message))
	if head == 0 {
		return "", 0
	}
	for end := len(message); ; {
		if end = strings.LastIndex(message[:end], " from "); end < head {
			return "", 0
		}
		if m := origin.FindStringSubmatch(message[end:]); m != nil {
			return m[1], times
		}
	}
}

// isSSHD knows the names of OpenSSH's processes: those with a dash came with versions 9.8 and 10.
func isSSHD(program string) bool {
	return program == "sshd" || program == "sshd-session" || program == "sshd-auth"
}

// parseEvent reads a line "time,event" or "time,event,units". A field may be quoted as in CSV, within the line; spaces
// around a field do not count.
func parseEvent(line string) (attempt, error) {
	fields, err := splitFields(line)
	if err != nil {
		return attempt{}, err
	}
	a := attempt{event: strings.TrimSpace(fields[1]), units: 1, times: 1}
	if a.at, err = parseTime(strings.TrimSpace(fields[0])); err != nil {
		return attempt{}, err
	}
	if a.event == "" {
		return attempt{}, errors.New("the event is empty")
	}
	if len(fields) == 3 {
		a.units, err = parseUnits(strings.TrimSpace(fields[2]))
	}
	return a, err
}

func splitFields(line string) (fields []string, err error) {
	fields = strings.Split(line, ",")
	if strings.Contains(line, `"`) {
		r := csv.NewReader(strings.NewReader(line))
		r.TrimLeadingSpace = true
		if fields, err = r.Read(); err != nil {
			return nil, errors.New(`its quotes do not match; quote a field as "a, b", a quote in it as ""`)
		}
	}
	if len(fields) != 2 && len(fields) != 3 {
		return nil, fmt.Errorf("fields between commas: %d; write time,event or time,event,units", len(fields))
	}
	return fields, nil
}

// parseTime reads RFC 3339 or seconds since 1970, either with a fraction.
func parseTime(s string) (time.Time, error) {
	if at, ok := parseRFC3339(s); ok {
		return at, nil
	}
	whole, fraction, _ := strings.Cut(s, ".")
	seconds, err := strconv.ParseUint(whole, 10, 63)
	nanos, errFraction := strconv.ParseUint((fraction + "000000000")[:9], 10, 63)
	if err != nil || errFraction != nil {
		return time.Time{}, fmt.Errorf("%q is no time; write 2025-03-04T05:06:07Z or seconds since 1970", s)
	}
	at := time.Unix(int64(seconds), int64(nanos)).UTC()
	if seconds > 1<<40 || !inRange(at) {
		return time.Time{}, fmt.Errorf("%q lies beyond the year 6000; write seconds since 1970, not milliseconds", s)
	}
	return at, nil
}

func parseUnits(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is no number of units; write 1 or more", s)
	}
	return n, nil
}

// recognise returns the parser for files that hold such a line, or nil if the line tells nothing.
func (c *calendar) recognise(line string) parser {
	if _, rest, ok := c.cut(line); ok && syslogTag.MatchString(rest) {
		return c.sshd
	}
	if _, err := parseEvent(line); err == nil {
		return parseEvent
	}
	return nil
}

// isHeader reports whether a line names the columns instead of filling them.
func isHeader(line string) bool {
	first, _, found := strings.Cut(line, ",")
	return found && !strings.ContainsAny(first, "0123456789")
}
