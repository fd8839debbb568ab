// Package connect connects to the Redis server or cluster that --redis names, and explains why a
// connection fails.
package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/dial"
	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/window"
)

// Timeout is how long one call to Redis may take.
const Timeout = 5 * time.Second

// Addresses holds the address of a Redis server, or the addresses of nodes of one cluster.
type Addresses struct {
	rueidis.ClientOption

	files Files // set by Read
}

// Add adds the value of one flag: host:port, a comma-separated list of these, or a URL. A URL must
// be the first address. If the list contains an @, an error message does not quote it, because the
// part before the last @ may be a user and a password.
func (as *Addresses) Add(list string) error {
	for s := range strings.SplitSeq(list, ",") {
		err := as.add(s)
		isURL := strings.Contains(s, "://") && strings.Contains(s, "@")
		switch {
		case err != nil && strings.Contains(list, "@") && !isURL: // the part before @ may contain a password
			return dial.ErrLogin
		case err != nil:
			return err
		}
	}
	return nil
}

func (as *Addresses) add(s string) error {
	if strings.Contains(s, "://") {
		return as.addURL(s)
	}
	if !plainAddress.MatchString(s) {
		return errors.New("it is not the address of a Redis server; write host:port, as in 127.0.0.1:6379 or [::1]:6379")
	}
	as.InitAddress = append(as.InitAddress, s)
	if _, port, err := net.SplitHostPort(s); err != nil || port == "" {
		return fmt.Errorf("%q is not the address of a Redis server; write host:port, as in 127.0.0.1:6379", s)
	}
	return nil
}

// plainAddress matches a host with an optional port. Error messages quote nothing else, because it
// may contain a password, as in host:port,password=secret.
var plainAddress = regexp.MustCompile(`^([\w.-]*|\[[^]]*])(:\w*)?$`)

// addURL takes all connection options from the given URL.
func (as *Addresses) addURL(s string) error {
	o, err := dial.URL(s)
	if err == nil && len(as.InitAddress) > 0 {
		err = errors.New("other addresses precede its URL; write only the URL, as in rediss://user:password@host:6379")
	}
	if err == nil {
		as.ClientOption = o
	}
	return err
}

// String returns the addresses and the database, without a password.
func (as Addresses) String() string {
	text := strings.Join(as.InitAddress, ",")
	if as.SelectDB != 0 {
		text += "/" + strconv.Itoa(as.SelectDB)
	}
	return text
}

// IsURL reports whether String omits parts of a URL: the user, the password, TLS or the database.
func (as Addresses) IsURL() bool {
	ownPassword := as.Password != "" && as.files.Password == ""
	return as.Username != "" || ownPassword || as.TLSConfig != nil || as.SelectDB != 0
}

// Connect returns a client for a command that sends its requests one after another.
func (as Addresses) Connect(ctx context.Context) (rueidis.Client, error) {
	o := as.ClientOption
	o.Dialer = net.Dialer{Timeout: Timeout}
	o.ConnWriteTimeout = Timeout
	o.PipelineMultiplex = -1 // one connection: with several, a call that timed out could run after its key was deleted
	o.DisableCache = true
	return as.dial(ctx, o)
}

// Serve returns a client for a service, with the options of window.Dial.
func (as Addresses) Serve(ctx context.Context) (rueidis.Client, error) {
	o := as.ClientOption
	dial.Safe(&o)
	return as.dial(ctx, o)
}

// dial connects to the addresses. rueidis detects whether they belong to a single server or to a
// cluster. Dialing stops when ctx is done.
func (as Addresses) dial(ctx context.Context, o rueidis.ClientOption) (rueidis.Client, error) {
	type connected struct {
		rueidis.Client
		err error
	}
	result, asked := make(chan connected, 1), sendCertificate(&o)
	go func() {
		client, err := dial.Client(o)
		result <- connected{client, err}
	}()
	dialing, stop := context.WithCancel(ctx)
	defer stop()
	var err error
	select {
	case r := <-result:
		if err = r.err; err == nil {
			return r.Client, nil
		}
	case err = <-plainPort(dialing, o):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f := failure{err, as.files, o.TLSConfig != nil, asked.Load() && brokeOff(err)}
	cause, _, _ := strings.Cut(as.Redact(err.Error()), ", ") // NOAUTH has a long message
	return nil, &unreachable{fmt.Sprintf("--redis %v: %s (%s); %s", as, f.complaint(), cause, f.remedy()), err}
}

// tlsPatience is how long a TLS handshake may take before plainPort tries without TLS.
const tlsPatience = 500 * time.Millisecond

var errPlain = errors.New("it answers PING without TLS")

// plainPort detects a server without TLS, which takes a TLS handshake for the start of a command
// and waits for the rest. If the handshake takes longer than tlsPatience and the server answers a
// connection without TLS meanwhile, plainPort sends errPlain. Otherwise it sends nothing.
func plainPort(ctx context.Context, o rueidis.ClientOption) <-chan error {
	found := make(chan error, 1)
	if o.TLSConfig == nil {
		return found
	}
	go func() {
		select {
		case <-ctx.Done():
		case <-time.After(tlsPatience):
			if answersPlain(ctx, o.InitAddress[0]) {
				found <- errPlain
			}
		}
	}()
	return found
}

// answersPlain reports whether the server at the given address answers PING without TLS.
func answersPlain(ctx context.Context, address string) bool {
	conn, err := (&net.Dialer{Timeout: Timeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // only a probe, so its error does not matter
	_ = conn.SetDeadline(time.Now().Add(Timeout))
	answer := make([]byte, 1)
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	_, err = conn.Read(answer)
	return err == nil && (answer[0] == '+' || answer[0] == '-')
}

// Failed returns an error that says why Redis failed and what to do: the given advice or, if the
// user lacks a permission, to name another user. It does not say whether the library counted the
// attempt.
func (as Addresses) Failed(err error, advice string) error {
	if window.ReasonOf(err) == window.ReasonNoPerm {
		advice = "name a user who may, as in redis://user:password@host:6379"
	}
	return fmt.Errorf("--redis %v failed (%s); %s", as, as.Redact(cause(err)), advice)
}

// Redact removes the user and the password from an error message, because Redis can repeat them in
// a reply: the user in that of NOPERM, and all arguments of a command that it does not know. Errors
// of a connection that fails contain no password: see dial.Client.
func (as Addresses) Redact(text string) string {
	return strings.ReplaceAll(dial.WithoutArgs(text), "User "+as.Username+" ", "User *** ") // as in NOPERM
}

// cause returns why Redis failed, without saying whether the library counted the attempt.
func cause(err error) string {
	if f := health.FailureIn(err); f != nil {
		return f.Cause.Error()
	}
	return err.Error()
}
