// Package dial makes clients of rueidis from a URL, with settings that keep an outage short.
package dial

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

var (
	errEmpty = errors.New("the URL of Redis is empty; write one, as in redis://127.0.0.1:6379")
	errURL   = errors.New("the URL of Redis cannot be read; write one as in redis://127.0.0.1:6379 or rediss://user:password@host:6379, " +
		"with special characters of the password percent-encoded, such as / as %2F")
	errAddress = errors.New("no address of Redis is set; name one in the URL, as in redis://127.0.0.1:6379 or unix:///run/redis.sock")
)

// withLogin matches a URL in which an @ can only end the user and the password. Without it, what
// follows a / ? or # in a password would be a path, and what precedes it a host.
var withLogin = regexp.MustCompile(`^\w+://([^/?#]*@)?[^@]*$`)

// URL returns the options in a URL, as rueidis.ParseURL reads it, and with its TLS also for
// Sentinels. An error does not repeat the URL, which may hold a password.
func URL(url string) (rueidis.ClientOption, error) {
	if url == "" {
		return rueidis.ClientOption{}, errEmpty
	}
	o, err := rueidis.ParseURL(url)
	if err != nil || !withLogin.MatchString(url) {
		return rueidis.ClientOption{}, errURL
	}
	o.Sentinel.TLSConfig = o.TLSConfig
	return o, nil
}

// Check returns an error if the options name no address.
func Check(o rueidis.ClientOption) error {
	if len(o.InitAddress) == 0 || slices.Contains(o.InitAddress, "") {
		return errAddress
	}
	return nil
}

// Safe sets AlwaysPipelining, and timeouts that keep an outage short where there are none.
func Safe(o *rueidis.ClientOption) {
	o.AlwaysPipelining = true
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = time.Second
	}
	if o.ConnWriteTimeout == 0 {
		o.ConnWriteTimeout = 2 * time.Second
	}
	o.Sentinel.Dialer = o.Dialer
}

// Client connects. If the server cannot track keys, the client has no cache, and asks Redis about
// every denial. An error does not repeat a password.
func Client(o rueidis.ClientOption) (rueidis.Client, error) {
	client, err := rueidis.NewClient(o)
	if errors.Is(err, rueidis.ErrNoCache) {
		o.DisableCache = true
		client, err = rueidis.NewClient(o)
	}
	return client, withoutPasswords(err, o.Password, o.Sentinel.Password)
}

// withoutPasswords returns an error whose text has no password, because a server can repeat one in
// a reply. It is err itself unless the text has one.
func withoutPasswords(err error, passwords ...string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, p := range passwords {
		if p != "" {
			text = strings.ReplaceAll(text, p, "***")
		}
	}
	if text == err.Error() {
		return err
	}
	return &failure{text, err}
}

// failure is the error of a failed connection, with a text that holds no password.
type failure struct {
	text  string
	cause error
}

func (e *failure) Error() string { return e.text }

// Unwrap returns the error of rueidis.
func (e *failure) Unwrap() error { return e.cause }
