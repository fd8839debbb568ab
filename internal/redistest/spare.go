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

// spare holds servers without flags that tests have returned. Each saves a new container, and so a
// third of a second of CPU.
var spare struct {
	mu       sync.Mutex
	servers  []*Server
	settings map[string]string // of a new server
}

// borrow returns a server without flags. When the test ends, later tests can have it.
func borrow(tb testing.TB) *Server {
	tb.Helper()
	s := takeSpare()
	if s == nil {
		s = startNew(tb, nil)
	}
	tb.Cleanup(func() { s.giveBack(tb.Failed()) })
	check(tb, s.noteSettings())
	return s
}

// takeSpare returns a spare server, or nil.
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

// noteSettings records the settings of the first server, which is new.
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

// giveBack empties the server, and keeps it for later tests. It removes a server whose test failed,
// or that the test broke or configured. Functions and latency events would stay: a test that
// creates them starts a server with flags.
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

// clean closes the connections of tests, removes all data, and returns an error unless the server
// then has the settings of a new one.
func (s *Server) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for range 2 { // the first time, the server may not yet have accepted all connections
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

// settings returns the settings and users of a server. It omits the port and the directory, which
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
