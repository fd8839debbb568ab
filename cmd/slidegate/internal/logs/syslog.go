package logs

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// syslog reads the log of sshd in any of the syslog formats: a time, a host, a program and a
// message. A message is an attempt if it comes from sshd or one of its processes and reads "Failed
// <method> for <user> from <address> port <port>", or the same with Accepted. With anyField, every
// line of any program is an attempt.
type syslog struct{ calendar }

var (
	errHeader = errors.New("the header before sshd has an unknown format; write the log with journalctl -u ssh -o short-iso")
	errTime   = errors.New("it does not begin with a time in a known format; write the log with journalctl -o short-iso")

	// saidBySSHD matches the header of an sshd message in any of the formats, up to the message.
	saidBySSHD = regexp.MustCompile(`\bsshd(?:-session|-auth)?(?:(?:\[\d+\])?:| \d+ - -) +`)
)

var syslogFields = []string{"address", "user"}

func (*syslog) fields() []string        { return syslogFields }
func (*syslog) byDefault(string) string { return "address" }

func asSyslog(line string, _ Options, _ bool) format {
	_, rest, ok := new(calendar).cut(line)
	if _, _, tagged := cutTag(rest); !ok || !tagged {
		return nil
	}
	return &syslog{}
}

func (s *syslog) read(line, field string) (Attempt, error) {
	at, rest, ok := s.cut(line)
	program, message, tagged := cutTag(rest)
	a := Attempt{At: at, Units: 1, Times: 1, Yearless: s.assumed}
	switch {
	case field == anyField && !ok:
		return a, errTime
	case field == anyField:
		_, a.Times = cutRepeated(message)
		return a, nil
	case !ok || !tagged:
		return a, headerError(line)
	case !isSSHD(program):
		return a, errNoAttempt
	}
	message, a.Times = cutRepeated(message)
	return a.login(message, field)
}

// login adds the account, the address and the result from an sshd message to the attempt.
func (a Attempt) login(message, field string) (Attempt, error) {
	user, from, err := cutLogin(message)
	if err != nil {
		return a, err
	}
	address, err := netip.ParseAddr(from)
	if err != nil {
		return a, fmt.Errorf("the attempt comes from %q, which is not an address", from)
	}
	a.Account, a.HasResult, a.Succeeded = user, true, message[0] == 'A'
	if a.Event = user; field == "address" {
		a.Event = address.Unmap().String()
	}
	return a, nil
}

// cutTag splits what follows the time: the host, on some systems the facility and level, the
// program with its process ID, and the message.
func cutTag(rest string) (program, message string, ok bool) {
	host, rest, _ := strings.Cut(rest, " ")
	tag, message, ok := strings.Cut(rest, ": ")
	if level, program, found := strings.Cut(tag, " "); found {
		tag = program
		ok = ok && strings.Contains(level, ".")
	}
	program, process, found := strings.Cut(tag, "[")
	if found {
		process, found = strings.CutSuffix(process, "]")
		ok = ok && found && isNumber(process)
	}
	return program, message, ok && host != "" && program != "" && !strings.ContainsAny(program, " \t:")
}

func isNumber(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// cutRepeated unpacks "message repeated 5 times: [ … ]". It returns the inner message and the
// number of repetitions.
func cutRepeated(message string) (string, int) {
	rest, ok := strings.CutPrefix(message, "message repeated ")
	if !ok {
		return message, 1
	}
	count, inner, found := strings.Cut(rest, " times: [ ")
	inner, closed := strings.CutSuffix(inner, "]")
	n, err := strconv.Atoi(count)
	if !found || !closed || !isNumber(count) || err != nil || n < 1 || n > 999_999 {
		return message, 1
	}
	return inner, n
}

// headerError returns the error for a line with an unknown header. If the line is an sshd attempt,
// it is unreadable. Any other line is not an attempt.
func headerError(line string) error {
	if said := saidBySSHD.FindStringIndex(line); said != nil {
		message, _ := cutRepeated(line[said[1]:])
		if _, _, err := cutLogin(message); !errors.Is(err, errNoAttempt) {
			return errHeader
		}
	}
	return errNoAttempt
}

// cutLogin returns who attempted a login, and from where. The client chooses the user name, which
// can imitate the rest of the line, and strings in a certificate, which can imitate another end of
// the line. Therefore, cutLogin accepts an origin only if sshd could have written everything after
// it. A line with two acceptable origins is unreadable.
func cutLogin(message string) (user, from string, err error) {
	method, rest, ok := strings.Cut(message, " for ")
	_, method, spaced := strings.Cut(method, " ")
	if !ok || !spaced || strings.Contains(method, " ") || !strings.HasPrefix(message, "Failed ") && !strings.HasPrefix(message, "Accepted ") {
		return "", "", errNoAttempt
	}
	for end := len(rest); ; {
		if end = strings.LastIndex(rest[:end], " from "); end < 0 {
			break
		}
		address, ok := cutOrigin(rest[end+len(" from "):])
		if ok && from != "" {
			return "", "", errTwoOrigins
		}
		if ok {
			user, from = strings.TrimPrefix(rest[:end], "invalid user "), address
		}
	}
	if from == "" {
		return "", "", errNoAttempt
	}
	return user, from, nil
}

var (
	errTwoOrigins = errors.New("it names two addresses, and a client may have invented one")

	// keyInfo matches what sshd writes after the port if an attempt uses a key: the key's type and
	// fingerprint, its certificate, and the names for which a host vouches. With GSSAPI, it matches
	// the principal.
	keyInfo = regexp.MustCompile(`^: (?:\S+|\S+ \S+|\S+-CERT (?:\S+ )?ID .* \(serial \d+\) CA \S+ \S+)(?:, client user ".*", client host ".*")?$`)
)

// cutOrigin parses "<address> port <port>", optionally followed by the protocol, [preauth] and the
// key.
func cutOrigin(s string) (address string, ok bool) {
	address, s, _ = strings.Cut(s, " port ")
	port := len(s) - len(strings.TrimLeft(s, "0123456789"))
	if port == 0 || address == "" || strings.ContainsAny(address, " \t") {
		return "", false
	}
	s = s[port:]
	if len(s) >= 5 && s[:4] == " ssh" && isNumber(s[4:5]) {
		s = s[5:]
	}
	s = strings.TrimPrefix(s, " [preauth]")
	return address, s == "" || isKeyInfo(s)
}

// isKeyInfo reports whether keyInfo matches s. It recognizes the most common form, a type and a
// fingerprint, without the regular expression, because that is faster.
func isKeyInfo(s string) bool {
	key, ok := strings.CutPrefix(s, ": ")
	kind, fingerprint, _ := strings.Cut(key, " ")
	if ok && kind != "" && fingerprint != "" && !strings.ContainsAny(fingerprint, " \t") {
		return true
	}
	return keyInfo.MatchString(s)
}

// isSSHD reports whether program is a process of the OpenSSH server. The names with a dash were
// introduced in versions 9.8 and 10.
func isSSHD(program string) bool {
	return program == "sshd" || program == "sshd-session" || program == "sshd-auth"
}
