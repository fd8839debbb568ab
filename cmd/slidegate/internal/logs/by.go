package logs

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/slidegate/slidegate/internal/keys"
)

// By selects the event of a line. The zero value selects the default field of the log's format,
// such as the address.
type By struct {
	Field   string         // a field of the format, such as user; empty means the default field
	Bits    int            // 1 to 128: Field is an address, and IPv6 addresses are replaced by their network with this prefix length; 0: use the field unchanged
	Pattern *regexp.Regexp // its single group finds the event in the whole line; Field and Bits are then zero
}

// ParseBy parses the value of --by. This is a field such as "user", an address field with a prefix
// length such as "address/64", or a regular expression such as "rip=([0-9a-f.:]+)". Any value that
// contains a parenthesis is taken for a regular expression. Whether a log has the field is checked
// later, when the log is read.
func ParseBy(s string) (By, error) {
	if strings.Contains(s, "(") {
		return parsePattern(s)
	}
	field, bits, network := s, "", false
	if slash := strings.LastIndexByte(s, '/'); slash >= 0 {
		field, bits, network = s[:slash], s[slash+1:], true
	}
	n, err := strconv.ParseUint(bits, 10, 8)
	switch {
	case field == "":
		return By{}, fmt.Errorf("%q is not a field; write one, as in user, or address/64", s)
	case network && !isNumber(bits) && bits != "":
		return By{}, fmt.Errorf("%q is not a field; write one, as in user, or address/64, or a regular expression with a group around the event, as in rip=([0-9a-f.:]+)", s)
	case strings.ContainsFunc(field, unicode.IsControl):
		return By{}, fmt.Errorf("%q holds a control character, which no field has; leave it out", s)
	case network && (err != nil || n < 1 || n > 128):
		return By{}, fmt.Errorf("%q has no number from 1 to 128 after the slash; write %s/64", s, field)
	}
	return By{Field: field, Bits: int(n)}, nil
}

func parsePattern(s string) (By, error) {
	pattern, err := oneGroup(s, "write one group around the event, as in "+exampleBy)
	return By{Pattern: pattern}, err
}

const exampleBy = "rip=([0-9a-f.:]+)"

// ParseTimeRegex parses a regular expression whose single group encloses the time.
func ParseTimeRegex(s string) (*regexp.Regexp, error) {
	return oneGroup(s, `write one group around the time, as in ^\[(.*?)\]`)
}

// oneGroup compiles a regular expression, and checks that it has exactly one group.
func oneGroup(s, remedy string) (*regexp.Regexp, error) {
	pattern, err := regexp.Compile(s)
	if err != nil {
		return nil, fmt.Errorf("'%s' is not a regular expression: %s; %s", Shown(s), strings.TrimPrefix(err.Error(), "error parsing regexp: "), remedy)
	}
	if n := pattern.NumSubexp(); n != 1 {
		return nil, fmt.Errorf("'%s' has %d capturing groups; %s, and others as (?:a|b)", Shown(s), n, remedy)
	}
	return pattern, nil
}

// field returns the field that b selects in a log of the given format. If a log has a field
// "address" but no field "ip", then "ip" selects "address".
func (b By) field(f format, line string) string {
	switch {
	case b.Field == "":
		return f.byDefault(line)
	case b.Field == "ip" && !has(f, "ip") && has(f, "address"):
		return "address"
	}
	return b.Field
}

// emptyFieldError says that a line is not an attempt, because the named field is empty or missing.
type emptyFieldError string

func (field emptyFieldError) Error() string {
	return errNoAttempt.Error() + ": its " + string(field) + " is empty"
}

func (field emptyFieldError) Unwrap() error { return errNoAttempt }

// event returns the attempt in a line. A line without an event is not an attempt. The returned
// event does not keep the line in memory.
func (b By) event(f format, line string) (Attempt, error) {
	if b.Pattern != nil {
		return b.match(f, line)
	}
	field := b.field(f, line)
	a, err := f.read(line, field)
	switch {
	case err != nil:
		return Attempt{}, err
	case a.Event == "":
		return Attempt{}, emptyFieldError(field)
	case b.Bits == 0 && field == defaultEvent:
		a.Event = strings.Clone(a.Event)
	case b.Bits == 0:
		a.Event = strings.Clone(withoutPort(a.Event))
	default:
		a.Event, err = network(a.Event, b.Bits)
	}
	return a, err
}

// match returns the attempt in a line, whose event the pattern finds. It passes every line to the
// format, so that the format sees all times. A line that does not match may have any content.
func (b By) match(f format, line string) (Attempt, error) {
	a, err := f.read(line, anyField)
	m := b.Pattern.FindStringSubmatch(line)
	if m == nil || m[1] == "" {
		return Attempt{}, errNoAttempt
	}
	a.Event = strings.Clone(m[1])
	return a, err
}

// withoutPort removes the port from an address such as 192.0.2.1:4022, because each connection has
// its own port. It returns any other string unchanged.
func withoutPort(event string) string {
	colon := strings.LastIndexByte(event, ':')
	if colon < 0 || event[0] != '[' && strings.IndexByte(event, ':') != colon {
		return event
	}
	if withPort, err := netip.ParseAddrPort(event); err == nil {
		return withPort.Addr().String()
	}
	return event
}

// network returns the network that contains an IPv6 address, such as 2001:db8:1:2::/64. It returns
// an IPv4 address unchanged.
func network(event string, bits int) (string, error) {
	address, err := netip.ParseAddr(withoutPort(event))
	if err != nil {
		return "", fmt.Errorf("%q is not an address, so it has no /%d", event, bits)
	}
	return keys.Network(address, bits), nil
}
