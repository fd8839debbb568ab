package redistest

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestCleanServerIsUsedAgain checks that the next test gets the same server, that the server is
// empty, and that the previous test's connections are closed.
func TestCleanServerIsUsedAgain(t *testing.T) {
	var addr, sha string
	var old net.Conn
	t.Run("first", func(t *testing.T) {
		s := Start(t)
		addr = s.Addr()
		check(t, s.Do(t.Context(), "SET", "key", "value").Error())
		if err := s.Do(t.Context(), "AUTH", "nobody", "wrong").Error(); err == nil {
			t.Error("a wrong password is accepted")
		}
		var err error
		old, err = net.Dial("tcp", addr)
		check(t, err)
		sha, err = s.Do(t.Context(), "SCRIPT", "LOAD", "return 1").ToString()
		check(t, err)
	})
	t.Run("second", func(t *testing.T) {
		s := Start(t)
		keys, err1 := s.Do(t.Context(), "DBSIZE").AsInt64()
		scripts, err2 := s.Do(t.Context(), "SCRIPT", "EXISTS", sha).AsIntSlice()
		denied, err3 := s.Do(t.Context(), "ACL", "LOG").ToArray()
		if err := errors.Join(err1, err2, err3); err != nil || s.Addr() != addr || keys != 0 || scripts[0] != 0 || len(denied) != 0 {
			t.Errorf("at %s, %s before: %d keys, scripts %d, ACL log %v, %v", s.Addr(), addr, keys, scripts, denied, err)
		}
		calls, err := s.Do(t.Context(), "INFO", "commandstats").ToString()
		if err != nil || strings.Contains(calls, "cmdstat_set:") {
			t.Errorf("the calls of the first test are counted: %s, %v", calls, err)
		}
	})
	defer old.Close()
	_ = old.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := old.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // documented to be io.EOF itself
		t.Errorf("a connection of the first test: %v", err)
	}
}

// TestChangedServerIsRemoved checks that no test gets a server that another test has configured.
func TestChangedServerIsRemoved(t *testing.T) {
	for name, change := range map[string][]string{
		"setting":      {"CONFIG", "SET", "maxmemory", "10mb"},
		"default user": {"ACL", "SETUSER", "default", "-evalsha"},
		"user":         {"ACL", "SETUSER", "other", "on", "nopass"},
		"replica":      {"REPLICAOF", "127.0.0.1", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			var addr string
			t.Run("changes", func(t *testing.T) {
				s := Start(t)
				addr = s.Addr()
				check(t, s.Do(t.Context(), change...).Error())
			})
			if s := Start(t); s.Addr() == addr {
				t.Errorf("%q is left", change)
			}
		})
	}
}
