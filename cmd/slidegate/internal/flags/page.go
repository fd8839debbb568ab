package flags

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/alecthomas/kong"
)

// PageAddress is the address at which to serve a page. It is empty if --web is not given.
type PageAddress string

// DefaultPage is the address used if --web is given without a value.
const DefaultPage PageAddress = "127.0.0.1:8002"

// Decode parses the flag. It takes the next word as the flag's value only if that word is an
// address, because it could be NAME.
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

// isAddress reports whether text is an address with a port, or :port, which means all interfaces.
func isAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	_, notIP := netip.ParseAddr(host)
	_, notPort := strconv.ParseUint(port, 10, 16)
	return notPort == nil && (notIP == nil || host == "" || host == "localhost")
}
