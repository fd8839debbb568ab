// Package dial creates rueidis clients from a URL, with settings that keep an outage short.
package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Errors in a URL.
var (
	errEmpty    = errors.New("the Redis URL is empty; write one, as in redis://127.0.0.1:6379")
	errScheme   = errors.New("the Redis URL does not start with redis://, rediss:// (for TLS) or unix://; write one as in redis://127.0.0.1:6379")
	errHost     = errors.New("the host or the port in the Redis URL is invalid; write them as in redis://127.0.0.1:6379 or redis://[::1]:6379, with a port from 1 to 65535")
	errDatabase = errors.New("the database in the Redis URL is not a number; write it as in redis://127.0.0.1:6379/1")
	errDuration = errors.New("the dial_timeout or the write_timeout in the Redis URL is not a duration; write one such as 500ms or 2s")
	errURL      = errors.New("the Redis URL cannot be parsed; write one as in redis://127.0.0.1:6379, with special characters percent-encoded, such as / as %2F")
	errAddress  = errors.New("no Redis address is set; name one in the URL, as in redis://127.0.0.1:6379 or unix:///run/redis.sock")

	// ErrLogin is the error for a URL in which the user or the password cannot be told apart from
	// the rest.
	ErrLogin = errors.New("the user or the password in the Redis URL cannot be parsed; write them as in rediss://user:password@host:6379, " +
		"with special characters percent-encoded, such as / as %2F")
)

// complaints maps errors of rueidis.ParseURL to the errors of this package.
var complaints = []struct {
	text string
	err  error
}{
	{"invalid userinfo", ErrLogin},
	{"invalid URL scheme", errScheme},
	{"invalid port", errHost},
	{"invalid database number", errDatabase},
	{"invalid URL path", errDatabase},
	{"invalid dial timeout", errDuration},
	{"invalid write timeout", errDuration},
}

// withLogin matches a URL in which an @ can only be the end of the user and the password. Without
// this check, a password that contains / ? or # would be split: the part before that character
// would be taken for a host, and the part after it for a path.
var withLogin = regexp.MustCompile(`^\w+://([^/?#]*@)?[^@]*$`)

// URL parses url with rueidis.ParseURL, and applies the TLS settings to Sentinels too. Its errors
// state what is wrong, but quote no part of the URL, which may contain a password.
func URL(url string) (rueidis.ClientOption, error) {
	switch {
	case url == "":
		return rueidis.ClientOption{}, errEmpty
	case !strings.Contains(url, "://"):
		return rueidis.ClientOption{}, errScheme
	case !withLogin.MatchString(url):
		return rueidis.ClientOption{}, ErrLogin
	}
	o, err := rueidis.ParseURL(url)
	if err = complaint(o, err); err != nil {
		return rueidis.ClientOption{}, err
	}
	o.Sentinel.TLSConfig = o.TLSConfig
	return o, nil
}

// complaint returns an error for an invalid URL, which rueidis has parsed to o or rejected with
// err.
func complaint(o rueidis.ClientOption, err error) error {
	isSocket := o.DialCtxFn != nil
	switch {
	case err == nil && o.SelectDB < 0:
		return errDatabase
	case err == nil && !isSocket && slices.ContainsFunc(o.InitAddress, isInvalid):
		return errHost
	case err == nil:
		return nil
	}
	for _, c := range complaints {
		if strings.Contains(err.Error(), c.text) {
			return c.err
		}
	}
	return errURL
}

// isInvalid reports whether address has an impossible host or port.
func isInvalid(address string) bool {
	host, port, err := net.SplitHostPort(address)
	number, notNumber := strconv.ParseUint(port, 10, 16)
	_, notIP := netip.ParseAddr(host)
	return err != nil || notNumber != nil || number == 0 || strings.Contains(host, ":") && notIP != nil
}

// Check returns an error if the options name no address.
func Check(o rueidis.ClientOption) error {
	if len(o.InitAddress) == 0 || slices.Contains(o.InitAddress, "") {
		return errAddress
	}
	return nil
}

// Safe sets AlwaysPipelining, and DisableCache, since limiters do not use client-side caching. It
// also sets timeouts that keep an outage short, unless o already has timeouts.
func Safe(o *rueidis.ClientOption) {
	o.AlwaysPipelining, o.DisableCache = true, true
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = time.Second
	}
	if o.ConnWriteTimeout == 0 {
		o.ConnWriteTimeout = 2 * time.Second
	}
	o.Sentinel.Dialer = o.Dialer
}

// Client connects to Redis and returns the client. Errors never contain a password.
func Client(o rueidis.ClientOption) (rueidis.Client, error) {
	if o.TLSConfig != nil && o.DialCtxFn == nil && o.DialFn == nil {
		o.DialCtxFn = dialTLS
	}
	client, err := rueidis.NewClient(o)
	return client, withoutPasswords(err, o.Password, o.Sentinel.Password)
}

// dialTLS dials as rueidis does: without TLS if config is nil, as it is for some Sentinels. If the
// server does not answer the handshake, the error is a HandshakeError.
func dialTLS(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	if config == nil {
		return dialer.DialContext(ctx, "tcp", address)
	}
	conn, err := (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp", address)
	isDial := errors.As(err, new(*net.OpError))
	if err != nil && !isDial && errors.Is(err, context.DeadlineExceeded) {
		return nil, &HandshakeError{address, dialer.Timeout}
	}
	return conn, err
}

// A HandshakeError means that a server did not answer the TLS handshake. A Redis server without TLS
// does not: it takes the handshake for the start of a command, and waits for the rest.
type HandshakeError struct {
	address string
	timeout time.Duration
}

// Error returns a text that names the address and the timeout.
func (e *HandshakeError) Error() string {
	return fmt.Sprintf("no answer to the TLS handshake from %s within %v", e.address, e.timeout)
}

// Timeout returns true. The error does not match the errors of package context, because no caller's
// context is done.
func (e *HandshakeError) Timeout() bool { return true }

// withoutPasswords returns err or, if it is the reply of a server that may quote one of the
// passwords, an error with another text. Redis quotes only the arguments of an unknown command.
// Another reply that contains a password is hidden as a whole: in a well-known message, a gap would
// reveal a short password.
func withoutPasswords(err error, passwords ...string) error {
	if !errors.As(err, new(*rueidis.RedisError)) {
		return err
	}
	text := WithoutArgs(err.Error())
	if slices.ContainsFunc(passwords, func(p string) bool { return p != "" && strings.Contains(text, p) }) {
		text = "the reply is hidden because it may quote the password"
	}
	if text == err.Error() {
		return err
	}
	return &failure{text, err}
}

// failure is the error for a failed connection. Its text never contains a password.
type failure struct {
	text  string
	cause error
}

func (e *failure) Error() string { return e.text }

// Unwrap returns the error of rueidis.
func (e *failure) Unwrap() error { return e.cause }

// WithoutArgs removes from a server's reply the arguments that it repeats if it does not know a
// command, because they can include a password or a key.
func WithoutArgs(reply string) string {
	text, _, _ := strings.Cut(reply, ", with args beginning with")
	return text
}
