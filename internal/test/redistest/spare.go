package redistest

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"
)

// spare holds servers without flags that tests have returned. Reusing a server saves a new
// container, and so a third of a second of CPU time.
var spare struct {
	mu       sync.Mutex
	servers  []*Server
	settings map[string]string // the settings of a new server
}

// borrow returns a server without flags. When the test ends, later tests can use the server.
func borrow(tb testing.TB) *Server {
	tb.Helper()
	s := takeSpare()
	if s == nil {
		var err error
		s, err = newServer(hostOf(tb), nil)
		check(tb, err)
	}
	tb.Cleanup(func() { s.giveBack(tb.Failed()) })
	check(tb, s.noteSettings())
	return s
}

// takeSpare takes a spare server, or returns nil if there is none.
func takeSpare() *Server {
	spare.mu.Lock()
	defer spare.mu.Unlock()
	n := len(spare.servers)
	if n == 0 {
		return nil
	}
	s := spare.servers[n-1]
	spare.servers = spare.servers[:n-1]
	return s
}

// noteSettings records the settings of the first server that a test borrows, because that server is
// new.
func (s *Server) noteSettings() error {
	spare.mu.Lock()
	defer spare.mu.Unlock()
	if spare.settings != nil {
		return nil
	}
	atEnd(removeSpares)
	var err error
	spare.settings, err = s.settings(context.Background())
	return err
}

func removeSpares() {
	for s := takeSpare(); s != nil; s = takeSpare() {
		s.remove()
	}
}

// giveBack empties the server, and keeps it for later tests. If the test failed, or if it broke or
// configured the server, giveBack removes the server instead. It does not delete functions and
// latency events, so a test that creates them must start a server with flags.
func (s *Server) giveBack(failed bool) {
	if failed || s.state != healthy || s.clean() != nil {
		s.remove()
		return
	}
	s.closeAdmin()
	spare.mu.Lock()
	defer spare.mu.Unlock()
	spare.servers = append(spare.servers, &Server{node: s.node})
}

// clean closes the tests' connections, and removes all data. It returns an error if the server's
// settings differ from those of a new server.
func (s *Server) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for range 2 { // twice, because the server may not have accepted all connections the first time
		for _, command := range []string{
			"CLIENT KILL TYPE normal", "CLIENT KILL TYPE pubsub", "FLUSHALL", "SCRIPT FLUSH",
			"ACL LOG RESET", "SLOWLOG RESET", "CONFIG RESETSTAT",
		} {
			if err := s.Do(ctx, strings.Fields(command)...).Error(); err != nil {
				return err
			}
		}
	}
	now, err := s.settings(ctx)
	if err == nil && !maps.Equal(now, spare.settings) {
		err = errors.New("the settings are not those of a new server")
	}
	return err
}

// settings returns the server's settings and users. It omits the port and the directory, which
// differ between servers.
func (s *Server) settings(ctx context.Context) (map[string]string, error) {
	all, err1 := s.Do(ctx, "CONFIG", "GET", "*").AsStrMap()
	users, err2 := s.Do(ctx, "ACL", "LIST").AsStrSlice()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	delete(all, "port")
	delete(all, "dir")
	all["users"] = strings.Join(users, "; ")
	return all, nil
}
