package connect

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/dial"
)

// unreachable is the error returned if a connection fails. Its message says what to do.
type unreachable struct {
	text  string
	cause error
}

func (e *unreachable) Error() string { return e.text }

// Unwrap returns the client's error.
func (e *unreachable) Unwrap() error { return e.cause }

// failure describes why a connection failed.
type failure struct {
	cause     error
	files     Files
	encrypted bool
	refused   bool // the server requested a certificate, and then closed the connection
}

// reply returns the error reply that caused the failure, if there is one.
func (f failure) reply() (reply *rueidis.RedisError, isReply bool) {
	isReply = errors.As(f.cause, &reply)
	return reply, isReply
}

// complaint returns what is wrong with the connection.
func (f failure) complaint() string {
	reply, isReply := f.reply()
	switch {
	case errors.Is(f.cause, errPlain):
		return "it does not speak TLS"
	case errors.As(f.cause, new(*tls.CertificateVerificationError)):
		return "its certificate is not trusted"
	case f.refused && f.files.Cert == "":
		return "it requires a certificate"
	case f.refused:
		return "it refuses the certificate"
	case isReply && strings.HasPrefix(reply.Error(), "WRONGPASS"):
		return "the user or the password is wrong"
	case isReply && strings.HasPrefix(reply.Error(), "NOAUTH"):
		return "it requires a password"
	}
	return "no Redis server or cluster answers there"
}

// remedy returns what to do about the failure.
func (f failure) remedy() string {
	switch {
	case errors.As(f.cause, new(*tls.CertificateVerificationError)):
		return f.trust()
	case f.refused && f.files.Cert == "":
		return "name one that it trusts with --redis-cert, and its key with --redis-key"
	case f.refused:
		return fmt.Sprintf("name one that it trusts with --redis-cert, instead of %q", f.files.Cert)
	case f.encrypted && f.isPlain():
		return "correct the address, or write redis:// where it does not speak TLS"
	}
	if reply, isReply := f.reply(); isReply {
		return f.answer(reply.Error())
	}
	if errors.Is(f.cause, io.EOF) || errors.Is(f.cause, syscall.ECONNRESET) {
		return "write a password into a URL, redis://user:password@host:6379, and rediss:// if it speaks TLS"
	}
	return start
}

// start is the advice when nothing more specific is known.
const start = "start it, or correct the address"

// isPlain reports whether the server does not use TLS.
func (f failure) isPlain() bool {
	return errors.Is(f.cause, errPlain) || errors.As(f.cause, new(*dial.HandshakeError)) || errors.As(f.cause, new(tls.RecordHeaderError))
}

// answer returns what to do about the given error reply.
func (f failure) answer(reply string) string {
	switch {
	case strings.Contains(reply, "cluster support disabled"):
		return "several addresses are nodes of one cluster: name one of a single server"
	case strings.HasPrefix(reply, "WRONGPASS"):
		return f.login()
	case strings.Contains(reply, "AUTH") || strings.Contains(reply, "PASS"):
		return "write a password into a URL, redis://user:password@host:6379, or name its file with --redis-password-file"
	}
	return start
}

// trust returns what to do about an untrusted server certificate.
func (f failure) trust() string {
	switch {
	case errors.As(f.cause, new(x509.HostnameError)):
		return "correct the host in its URL"
	case !errors.As(f.cause, new(x509.UnknownAuthorityError)):
		return "give the server a valid one"
	case f.files.CA == "":
		return "name the CA that signed it with --redis-ca"
	}
	return fmt.Sprintf("name the CA that signed it with --redis-ca, instead of %q", f.files.CA)
}

// login returns what to do about a wrong user or password.
func (f failure) login() string {
	if f.files.Password == "" {
		return "correct the user and the password in its URL"
	}
	return fmt.Sprintf("correct the user in its URL, or the password in %q", f.files.Password)
}

// brokeOff reports whether err means that the server closed the connection, with or without a TLS
// alert.
func brokeOff(err error) bool {
	var op *net.OpError
	alert := errors.As(err, &op) && op.Op == "remote error"
	return alert || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
