package flags

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
)

// Interval is the time between two refreshes, of at least 100 ms.
type Interval time.Duration

// Decode reads the flag.
func (i *Interval) Decode(c *kong.DecodeContext) error {
	return duration(c, (*time.Duration)(i), 100*time.Millisecond, math.MaxInt64, "not an interval; write one of at least 100ms", "5s")
}

// PageAddress is the address to serve a page at. It is empty without the flag --web.
type PageAddress string

// DefaultPage is the address of --web without a value.
const DefaultPage PageAddress = "127.0.0.1:8002"

// Decode parses the flag. It takes the next word as the value only if that is an address, because
// it could be NAME.
func (a *PageAddress) Decode(c *kong.DecodeContext) error {
	if *a != "" {
		return errTwice
	}
	next := c.Scan.Peek()
	text, _ := next.Value.(string)
	switch own := next.Type == kong.FlagValueToken; {
	case isMissing(c), !own && !isAddress(text):
		*a = DefaultPage
		return nil
	case !isAddress(text):
		return fmt.Errorf("%q is not an address to serve at; write an IP address and a port, as in 127.0.0.1:8002", text)
	}
	c.Scan.Pop()
	*a = PageAddress(text)
	return nil
}

// isAddress reports whether a string is an address and a port, or :port for all interfaces.
func isAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	_, notIP := netip.ParseAddr(host)
	_, notPort := strconv.ParseUint(port, 10, 16)
	return notPort == nil && (notIP == nil || host == "" || host == "localhost")
}
