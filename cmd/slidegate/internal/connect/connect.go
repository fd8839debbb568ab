// Package connect reaches a Redis or a cluster by what a user writes after --redis, and explains
// what is wrong with it.
package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/window"
)

// Timeout is how long Redis may take over one call of a command.
const Timeout = 5 * time.Second

// Addresses are how to reach a Redis, or nodes of one cluster.
type Addresses struct{ rueidis.ClientOption }

// Add adds a server, as host:port or as a URL. A URL stands alone.
func (as *Addresses) Add(s string) error {
	if strings.Contains(s, "://") {
		return as.addURL(s)
	}
	as.InitAddress = append(as.InitAddress, s)
	if _, port, err := net.SplitHostPort(s); err != nil || port == "" {
		return fmt.Errorf("%q is no address of a Redis; write host:port, as in 127.0.0.1:6379", s)
	}
	return nil
}

// addURL takes everything from a URL. Its text is not repeated in an error, since it may hold a
// password.
func (as *Addresses) addURL(s string) error {
	o, err := rueidis.ParseURL(s)
	if err != nil || len(as.InitAddress) > 0 {
		return errors.New("its URL cannot be read; write one alone, as in rediss://user:password@host:6379")
	}
	as.ClientOption = o
	return nil
}

// String returns the servers and the database, without a password.
func (as Addresses) String() string {
	text := strings.Join(as.InitAddress, ",")
	if as.SelectDB != 0 {
		text += "/" + strconv.Itoa(as.SelectDB)
	}
	return text
}

// Connect connects a command that asks one thing after the other.
func (as Addresses) Connect(ctx context.Context) (rueidis.Client, error) {
	o := as.ClientOption
	o.Dialer = net.Dialer{Timeout: Timeout}
	o.ConnWriteTimeout = Timeout
	o.PipelineMultiplex = -1 // one connection: over several, a call that timed out could run after the removal of what it wrote
	o.DisableCache = true
	return as.dial(ctx, o)
}

// Serve connects a service, with the options of docs/servers.md.
func (as Addresses) Serve(ctx context.Context) (rueidis.Client, error) {
	o := as.ClientOption
	o.AlwaysPipelining = true
	o.Dialer = net.Dialer{Timeout: time.Second}
	o.ConnWriteTimeout = 2 * time.Second
	client, err := as.dial(ctx, o)
	if errors.Is(err, rueidis.ErrNoCache) { // then Redis decides about every denial
		o.DisableCache = true
		client, err = as.dial(ctx, o)
	}
	return client, err
}

// dial finds out by itself whether the addresses are of one server or of a cluster. The end of ctx
// ends the wait for it.
func (as Addresses) dial(ctx context.Context, o rueidis.ClientOption) (rueidis.Client, error) {
	type connected struct {
		rueidis.Client
		err error
	}
	result := make(chan connected, 1)
	go func() {
		client, err := rueidis.NewClient(o)
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
	cause, _, _ := strings.Cut(err.Error(), ", ") // NOAUTH goes on for long
	return nil, &unreachable{fmt.Sprintf("--redis %v: %s (%s); %s", as, complaint(err), cause, remedy(err, o.TLSConfig != nil)), err}
}

// tlsPatience is how long a TLS handshake may take before plainPort asks without TLS.
const tlsPatience = 500 * time.Millisecond

var errPlain = errors.New("it answers PING without TLS")

// plainPort sends errPlain if the server answers without TLS, where a TLS connection takes longer
// than one should: a Redis without TLS takes the greeting for the beginning of a command, and waits
// for the rest. It sends nothing otherwise.
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

// answersPlain reports whether a Redis at the address answers PING without TLS.
func answersPlain(ctx context.Context, address string) bool {
	conn, err := (&net.Dialer{Timeout: Timeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	_ = conn.SetDeadline(time.Now().Add(Timeout))
	answer := make([]byte, 1)
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	_, err = conn.Read(answer)
	return err == nil && (answer[0] == '+' || answer[0] == '-')
}

// complaint returns what is wrong with a connection.
func complaint(err error) string {
	reply, isReply := rueidis.IsRedisErr(err)
	switch {
	case errors.Is(err, errPlain):
		return "it speaks no TLS"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return "its certificate is not trusted"
	case isReply && strings.HasPrefix(reply.Error(), "WRONGPASS"):
		return "the user or the password is wrong"
	case isReply && strings.HasPrefix(reply.Error(), "NOAUTH"):
		return "it asks for a password"
	}
	return "no Redis and no cluster answers there"
}

// unreachable is an error of a connection that could not be made, and what to do.
type unreachable struct {
	text  string
	cause error
}

func (e *unreachable) Error() string { return e.text }

// Unwrap returns what the client says.
func (e *unreachable) Unwrap() error { return e.cause }

// remedy returns what to do about a Redis that cannot be connected to.
func remedy(err error, encrypted bool) string {
	switch {
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return "correct the host in its URL, or have this system trust the certificate"
	case encrypted && (errors.Is(err, errPlain) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(tls.RecordHeaderError))): // Redis waits for more of what it takes for a command
		return "correct the address, or write redis:// where it speaks no TLS"
	}
	reply, isReply := rueidis.IsRedisErr(err)
	if isReply && strings.Contains(reply.Error(), "cluster support disabled") {
		return "several addresses are nodes of one cluster: name one of a single server"
	}
	if isReply && strings.HasPrefix(reply.Error(), "WRONGPASS") {
		return "correct the user and the password in its URL"
	}
	locked := isReply && (strings.Contains(reply.Error(), "AUTH") || strings.Contains(reply.Error(), "PASS"))
	if locked || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return "write a password into a URL, redis://user:password@host:6379, and rediss:// where it speaks TLS"
	}
	return "start it, or correct the address"
}

// Failed returns an error that says why Redis failed, and what to do: otherwise, unless the user
// lacks a permission. It leaves out what the library says about the count.
func (as Addresses) Failed(err error, otherwise string) error {
	why := cause(err)
	return fmt.Errorf("--redis %v failed (%s); %s", as, why, next(why, otherwise))
}

// next returns what to do about why Redis failed: otherwise, unless the user lacks a permission.
func next(why, otherwise string) string {
	if slices.ContainsFunc(forbidden, func(words string) bool { return strings.Contains(why, words) }) {
		return "name a user who may, as in redis://user:password@host:6379"
	}
	return otherwise
}

// forbidden are the words in which servers refuse what an ACL does not permit: a call by the
// client, and one by the script up to Redis 7.0 and since.
var forbidden = []string{"NOPERM", "The user executing the script can't", "ACL failure in script"}

// cause returns why Redis failed, without what the library says about the count.
func cause(err error) string {
	text := err.Error()
	for _, e := range []error{window.ErrOutage, window.ErrUncertain} {
		if _, after, found := strings.Cut(text, e.Error()+": "); found {
			text = after
		}
	}
	return text
}
