package connect

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
)

// TestReplyWithLogin connects to servers whose reply repeats the user or the password. It checks
// that the error shows neither.
func TestReplyWithLogin(t *testing.T) {
	for reply, want := range map[string]string{
		"NOPERM User zebra has no permissions to run the 'hello' command":       "(NOPERM User *** has no permissions to run the 'hello' command)",
		"ERR unknown command 'AUTH', with args beginning with: 'zebra' 'okapi'": "(unknown command 'AUTH')",
		"ERR okapi is no password": "(*** is no password)",
	} {
		var as Addresses
		if err := as.Add("redis://zebra:okapi@" + refuser(t, reply)); err != nil {
			t.Fatal(err)
		}
		_, err := as.Connect(t.Context())
		if text := fmt.Sprint(err); !strings.Contains(text, want) || strings.Contains(text, "zebra") || strings.Contains(text, "okapi") {
			t.Errorf("%s: %s", reply, text)
		}
	}
}

// refuser starts a server that sends the same error reply to each command. It returns its address.
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
		if strings.HasPrefix(lines.Text(), "*") { // the beginning of a command
			_, _ = fmt.Fprintf(conn, "-%s\r\n", reply)
		}
	}
}

// FuzzAdd checks that nothing before the last @ of an address is in the error, or else in the
// servers to dial.
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
