package connect

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/internal/test/tlstest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestReplyWithLogin connects to servers whose reply quotes the user or the password, and checks
// that the error shows neither.
func TestReplyWithLogin(t *testing.T) {
	for reply, want := range map[string]string{
		"NOPERM User zebra has no permissions to run the 'hello' command":       "(NOPERM User *** has no permissions to run the 'hello' command)",
		"ERR unknown command 'AUTH', with args beginning with: 'zebra' 'okapi'": "(unknown command 'AUTH')",
		"ERR okapi is no password": "(the reply is hidden because it may quote the password)",
	} {
		for login, files := range map[string]Files{"zebra:okapi": {}, "zebra": {Password: tlstest.Write(t, "okapi")}} {
			var as Addresses
			if err := cmp.Or(as.Add("redis://"+login+"@"+refuser(t, reply)), as.Read(files)); err != nil {
				t.Fatal(err)
			}
			_, err := as.Connect(t.Context())
			if text := fmt.Sprint(err); !strings.Contains(text, want) || strings.Contains(text, "zebra") || strings.Contains(text, "okapi") {
				t.Errorf("%s: %s", reply, text)
			}
		}
	}
}

// TestShortPassword checks that no gap in a well-known message reveals a short password.
func TestShortPassword(t *testing.T) {
	var as Addresses
	if err := as.Add("redis://:p@" + refuser(t, "NOPERM this user has no permissions")); err != nil {
		t.Fatal(err)
	}
	_, err := as.Connect(t.Context())
	later := as.Failed(errors.New("NOPERM this user has no permissions"), "try again")
	for _, err := range []error{err, later} {
		if text := fmt.Sprint(err); strings.Contains(text, "***") {
			t.Error(text)
		}
	}
}

// TestTLS connects to servers whose certificates come from a private CA, and to others. It checks the
// error messages, and that they show no password.
func TestTLS(t *testing.T) {
	ca, other := tlstest.NewAuthority(t), tlstest.NewAuthority(t)
	cert, key := ca.Issue(t)
	stranger, strangerKey := other.Issue(t)
	asks := ca.Start(t, "--requirepass", "okapi").Addr()
	asksNot := ca.Start(t, "--requirepass", "okapi", "--tls-auth-clients", "no").Addr()
	old := ca.Start(t, "--requirepass", "okapi", "--tls-protocols", "TLSv1.2").Addr()
	web := httptest.NewServer(nil)
	defer web.Close()
	password, wrong := tlstest.Write(t, "okapi\r\n"), tlstest.Write(t, "okapia")
	_, port, _ := net.SplitHostPort(asks)
	for _, tt := range []struct {
		name, url string
		files     Files
		want      string // empty if the connection succeeds
	}{
		{"a private CA, a password in the URL", "rediss://:okapi@" + asksNot, Files{CA: ca.File}, ""},
		{"a private CA, a password in a file", "rediss://" + asksNot, Files{CA: ca.File, Password: password}, ""},
		{"a user in the URL, a password in a file", "rediss://default@" + asksNot, Files{CA: ca.File, Password: password}, ""},
		{"a certificate of the client", "rediss://" + asks, Files{ca.File, cert, key, password}, ""},
		{"a certificate, by TLS 1.2", "rediss://" + old, Files{ca.File, cert, key, password}, ""},
		{"a certificate that nobody requires", "rediss://" + asksNot, Files{ca.File, stranger, strangerKey, password}, ""},

		{"no CA", "rediss://:okapi@" + asksNot, Files{}, "its certificate is not trusted (tls: failed to verify certificate: x509: certificate signed by unknown authority); name the CA that signed it with --redis-ca"},
		{"another CA", "rediss://:okapi@" + asksNot, Files{CA: other.File}, "name the CA that signed it with --redis-ca, instead of " + fmt.Sprintf("%q", other.File)},
		{"another host", "rediss://:okapi@localhost:" + port, Files{CA: ca.File}, "correct the host in its URL"},
		{"no certificate", "rediss://:okapi@" + asks, Files{CA: ca.File}, "it requires a certificate (*); name one that it trusts with --redis-cert, and its key with --redis-key"},
		{"no certificate, by TLS 1.2", "rediss://:okapi@" + old, Files{CA: ca.File}, "it requires a certificate (*); name one that it trusts with --redis-cert, and its key with --redis-key"},
		{"a certificate of another CA", "rediss://:okapi@" + asks, Files{CA: ca.File, Cert: stranger, Key: strangerKey}, "it refuses the certificate (*); name one that it trusts with --redis-cert, instead of " + fmt.Sprintf("%q", stranger)},
		{"no password", "rediss://" + asks, Files{CA: ca.File, Cert: cert, Key: key}, "it requires a password (*); write a password into a URL, redis://user:password@host:6379, or name its file with --redis-password-file"},
		{"no TLS", "redis://:okapi@" + asksNot, Files{}, "no Redis server or cluster answers there (*); write a password into a URL, redis://user:password@host:6379, and rediss:// if it speaks TLS"},
		{"TLS to a server without it", "rediss://" + redistest.Addr(t), Files{}, "it does not speak TLS (it answers PING without TLS); correct the address, or write redis:// where it does not speak TLS"},
		{"TLS to a web server", "rediss://" + web.Listener.Addr().String(), Files{}, "; correct the address, or write redis:// where it does not speak TLS"},
		{"a wrong password", "rediss://" + asksNot, Files{CA: ca.File, Password: wrong}, "the user or the password is wrong (*); correct the user in its URL, or the password in " + fmt.Sprintf("%q", wrong)},
	} {
		var as Addresses
		if err := cmp.Or(as.Add(tt.url), as.Read(tt.files)); err != nil {
			t.Fatal(err)
		}
		client, err := as.Connect(t.Context())
		if err == nil {
			client.Close()
		}
		begin, end, _ := strings.Cut(tt.want, "*")
		text := fmt.Sprint(err)
		if tt.want == "" && err != nil || tt.want != "" && (!strings.Contains(text, begin) || !strings.HasSuffix(text, end)) || strings.Contains(text, "okapi") {
			t.Errorf("%s: %s", tt.name, text)
		}
	}
}

// TestFiles checks the errors about files that are unsuitable on their own or in combination.
func TestFiles(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	cert, key := ca.Issue(t)
	_, otherKey := ca.Issue(t)
	noPEM, empty := tlstest.Write(t, "okapi"), tlstest.Write(t, "\n")
	damaged := tlstest.Write(t, "-----BEGIN CERTIFICATE-----\nb2thcGk=\n-----END CERTIFICATE-----\n")
	const tls, plain = "rediss://h:1", "redis://h:1"
	for _, tt := range []struct {
		url   string
		files Files
		want  string
	}{
		{tls, Files{Key: key}, `--redis-key "KEY" has no certificate; name it with --redis-cert`},
		{tls, Files{Cert: cert}, `--redis-cert "CERT" has no key; name it with --redis-key, even if the same file holds both`},
		{tls, Files{CA: "none"}, `--redis-ca: cannot read that file (no such file or directory); name the file that holds the certificate of the CA`},
		{tls, Files{Cert: "none", Key: key}, `--redis-cert: cannot read that file (no such file or directory); name the file that holds the certificate`},
		{tls, Files{Cert: cert, Key: "none"}, `--redis-key: cannot read that file (no such file or directory); name the file that holds the private key`},
		{tls, Files{Password: "none"}, `--redis-password-file: cannot read that file (no such file or directory); name the file that holds the password`},
		{tls, Files{CA: noPEM}, `--redis-ca: "TEXT" holds no certificate in PEM; name the file that holds the certificate of the CA`},
		{tls, Files{CA: key}, `--redis-ca: "KEY" holds no certificate in PEM; name the file that holds the certificate of the CA`},
		{tls, Files{CA: damaged}, `--redis-ca: "DAMAGED" holds no valid certificate; name the file that holds the certificate of the CA`},
		{tls, Files{Cert: key, Key: key}, `--redis-cert: "KEY" holds no certificate in PEM; name the file that holds the certificate`},
		{tls, Files{Cert: cert, Key: cert}, `--redis-key: "CERT" holds no private key in PEM; name the file that holds the private key`},
		{tls, Files{Cert: cert, Key: otherKey}, `--redis-key "OTHER" does not match --redis-cert "CERT" (private key does not match public key); name the key of the certificate, without a passphrase`},
		{plain, Files{CA: ca.File}, `--redis-ca "CA" needs TLS, and --redis h:1 does not use it; write rediss:// in --redis, as in rediss://host:6379, or leave out --redis-ca`},
		{"h:1", Files{Cert: cert, Key: key}, `--redis-cert "CERT" needs TLS, and --redis h:1 does not use it; write rediss:// in --redis, as in rediss://host:6379, or leave out --redis-cert`},
		{"redis://:okapi@h:1", Files{Password: noPEM}, `--redis-password-file is a second password, because the URL of --redis has one; leave out one of them`},
		{plain, Files{Password: empty}, `--redis-password-file: "EMPTY" is empty; name the file that holds the password`},
		{plain, Files{Password: "/dev/zero"}, `--redis-password-file: "/dev/zero" holds more than 1 MiB; name the file that holds the password`},
	} {
		var as Addresses
		if err := as.Add(tt.url); err != nil {
			t.Fatal(err)
		}
		names := strings.NewReplacer("CA\"", ca.File+`"`, "CERT", cert, "KEY", key, "OTHER", otherKey, "TEXT", noPEM, "DAMAGED", damaged, "EMPTY", empty)
		if err, want := as.Read(tt.files), names.Replace(tt.want); err == nil || err.Error() != want {
			t.Errorf("%s\ngot  %v\nwant %s", tt.url, err, want)
		}
	}
}

// refuser starts a server that answers every command with the same error reply. It returns the
// server's address.
func refuser(t *testing.T, reply string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go refuse(conn, reply)
		}
	}()
	return l.Addr().String()
}

func refuse(conn net.Conn, reply string) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "*") { // the start of a command
			_, _ = fmt.Fprintf(conn, "-%s\r\n", reply)
		}
	}
}

// FuzzAdd checks that what precedes the last @ of an address appears neither in the error nor among
// the servers to dial.
func FuzzAdd(f *testing.F) {
	for _, c := range []string{"", "/", "#", "?", ":", "@", ",", "://", "%", "?addr=", " ", "\xff"} {
		f.Add("redis://user:", c, "host:6379")
		f.Add("", c, "host:6379")
		f.Add("unix://"+c, c, "/socket")
	}
	f.Fuzz(func(t *testing.T, before, after, host string) {
		var as Addresses
		err := as.Add(before + "OKAPI" + after + "@" + strings.ReplaceAll(host, "OKAPI", ""))
		shown := as.String()
		if err != nil {
			shown = err.Error()
		}
		if strings.Contains(shown, "OKAPI") {
			t.Error(shown)
		}
	})
}
