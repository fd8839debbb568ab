// Package tlstest creates certificates for tests, and starts servers that use them.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// Authority represents a CA. It issues certificates for 127.0.0.1, for servers and clients.
type Authority struct {
	File string // a file with the CA's certificate, in PEM

	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority returns a new CA. Its file is removed when the test ends.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a := &Authority{key: newKey(tb)}
	a.certificate = sign(tb, &template, &template, a.key, a.key)
	a.File = Write(tb, pemOf("CERTIFICATE", a.certificate.Raw))
	return a
}

// Issue creates a certificate. It returns the names of the certificate's file and of its key's
// file, both in PEM.
func (a *Authority) Issue(tb testing.TB) (cert, key string) {
	tb.Helper()
	own := newKey(tb)
	template := x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "issued"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.MarshalECPrivateKey(own)
	check(tb, err)
	issued := sign(tb, &template, a.certificate, own, a.key)
	return Write(tb, pemOf("CERTIFICATE", issued.Raw)), Write(tb, pemOf("EC PRIVATE KEY", der))
}

// Start runs a Redis server with a certificate issued by this authority until the test ends.
// Clients must present one from the same authority, unless args include "--tls-auth-clients", "no".
func (a *Authority) Start(tb testing.TB, args ...string) *redistest.Server {
	tb.Helper()
	cert, key := a.Issue(tb)
	own, err := tls.LoadX509KeyPair(cert, key)
	check(tb, err)
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	files := map[string]string{"ca": text(tb, a.File), "cert": text(tb, cert), "key": text(tb, key)}
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	args = append([]string{"--tls-ca-cert-file", "ca", "--tls-cert-file", "cert", "--tls-key-file", "key"}, args...)
	return redistest.StartTLS(tb, files, config, args...)
}

// Write creates a file with the given content, and returns its name. The file is removed when the
// test ends.
func Write(tb testing.TB, content string) (file string) {
	tb.Helper()
	file = filepath.Join(tb.TempDir(), "file")
	check(tb, os.WriteFile(file, []byte(content), 0o600))
	return file
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(tb, err)
	return key
}

// sign returns a certificate for the key own, signed with the parent's key by.
func sign(tb testing.TB, template, parent *x509.Certificate, own, by *ecdsa.PrivateKey) *x509.Certificate {
	tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &own.PublicKey, by)
	check(tb, err)
	issued, err := x509.ParseCertificate(der)
	check(tb, err)
	return issued
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func text(tb testing.TB, file string) string {
	tb.Helper()
	content, err := os.ReadFile(file)
	check(tb, err)
	return string(content)
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
