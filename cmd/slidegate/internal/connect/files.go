package connect

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/smallfile"
)

// Files names the files that a connection needs. An empty name means no file.
type Files struct {
	CA       string // PEM certificates, one of which must have signed the server's; if empty, those that this system trusts
	Cert     string // a PEM certificate, for servers that require one
	Key      string // the private key of Cert, in PEM
	Password string // contains only the password; a trailing newline is ignored
}

// Flags returns the command-line flags that name these files, each with the name.
func (f Files) Flags() (flags [][2]string) {
	for _, file := range [][2]string{
		{"--redis-ca", f.CA}, {"--redis-cert", f.Cert}, {"--redis-key", f.Key}, {"--redis-password-file", f.Password},
	} {
		if file[1] != "" {
			flags = append(flags, file)
		}
	}
	return flags
}

// Read reads the files, for connections made afterwards. Call it once, after Add. Errors name the
// flag and the file.
func (as *Addresses) Read(f Files) error {
	as.files = f
	switch secure := as.TLSConfig != nil; {
	case f.Key != "" && f.Cert == "":
		return fmt.Errorf("--redis-key %q has no certificate; name it with --redis-cert", f.Key)
	case f.Cert != "" && f.Key == "":
		return fmt.Errorf("--redis-cert %q has no key; name it with --redis-key, even if the same file holds both", f.Cert)
	case f.CA != "" && !secure:
		return as.noTLS("--redis-ca", f.CA)
	case f.Cert != "" && !secure:
		return as.noTLS("--redis-cert", f.Cert)
	}
	for _, read := range []func() error{as.readPassword, as.readCA, as.readCert} {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

// noTLS returns the error for a certificate given for a connection without TLS.
func (as *Addresses) noTLS(flag, file string) error {
	return fmt.Errorf("%s %q needs TLS, and --redis %v does not use it; write rediss:// in --redis, as in rediss://host:6379, or leave out %s", flag, file, as, flag)
}

func (as *Addresses) readPassword() error {
	const flag, holds = "--redis-password-file", "the password"
	switch {
	case as.files.Password == "":
		return nil
	case as.Password != "":
		return errors.New(flag + " is a second password, because the URL of --redis has one; leave out one of them")
	}
	text, err := smallfile.Read(as.files.Password, holds)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	as.Password = strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if as.Password == "" {
		return fmt.Errorf("%s: %w", flag, smallfile.Empty(as.files.Password, holds))
	}
	return nil
}

func (as *Addresses) readCA() error {
	if as.files.CA == "" {
		return nil
	}
	text, err := readPEM("--redis-ca", as.files.CA, "CERTIFICATE", "the certificate of the CA")
	if err != nil {
		return err
	}
	as.TLSConfig.RootCAs = x509.NewCertPool()
	if !as.TLSConfig.RootCAs.AppendCertsFromPEM(text) {
		return fmt.Errorf("--redis-ca: %q holds no valid certificate; name the file that holds the certificate of the CA", as.files.CA)
	}
	return nil
}

func (as *Addresses) readCert() error {
	if as.files.Cert == "" {
		return nil
	}
	cert, err := readPEM("--redis-cert", as.files.Cert, "CERTIFICATE", "the certificate")
	if err != nil {
		return err
	}
	key, err := readPEM("--redis-key", as.files.Key, "PRIVATE KEY", "the private key")
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("--redis-key %q does not match --redis-cert %q (%s); name the key of the certificate, without a passphrase",
			as.files.Key, as.files.Cert, strings.TrimPrefix(err.Error(), "tls: "))
	}
	as.TLSConfig.Certificates = []tls.Certificate{pair}
	return nil
}

// readPEM returns the contents of a file that has a PEM block of the given kind, such as "PRIVATE
// KEY". For any other file, it returns an error that says which file to name.
func readPEM(flag, file, kind, holds string) ([]byte, error) {
	text, err := smallfile.Read(file, holds)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, kind) {
			return text, nil
		}
	}
	return nil, fmt.Errorf("%s: %q holds no %s in PEM; name the file that holds %s", flag, file, strings.ToLower(kind), holds)
}

// sendCertificate makes a client send its certificate, if it has one, to every server that requests
// one, whatever CAs the server names. asked is set as soon as a server requests one.
func sendCertificate(o *rueidis.ClientOption) (asked *atomic.Bool) {
	asked = new(atomic.Bool)
	if o.TLSConfig == nil {
		return asked
	}
	o.TLSConfig = o.TLSConfig.Clone()
	own := append(o.TLSConfig.Certificates, tls.Certificate{})[0]
	o.TLSConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		asked.Store(true)
		return &own, nil
	}
	o.Sentinel.TLSConfig = o.TLSConfig
	return asked
}
