// Package redistest provides real Redis servers for tests.
//
// A package that uses it needs this once:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// Tests then share one server, and use different keys, from [Key]. That server is never emptied. A
// test that needs its own flags, or breaks its server, calls [Start]. A test that needs several
// shards calls [Cluster], and one that moves slots or breaks nodes calls [Replicated].
//
// Servers start on first use, so a test binary that only lists its tests starts none. They run in
// Docker if it answers, and otherwise as processes of redis-server or valkey-server. The program
// cluster_test/containers controls Docker, so this module does not require testcontainers. Four
// environment variables control the choice:
//
//   - SLIDEGATE_REDIS_IMAGE is the image to run in Docker.
//   - SLIDEGATE_DOCKER=1 makes tests fail if Docker does not answer; with 0 they use processes.
//   - SLIDEGATE_INSTALL=1 allows apt-get to install redis-server if there is no other server, and
//     the packages that [Program] and [Tool] need. Without it, tests fail and say what to install.
//   - TESTCONTAINERS_... are the variables of testcontainers-go; see its documentation.
//
// A test that needs a feature that some servers lack calls [Needs].
//
// All servers are removed at the end. If the test binary dies earlier, servers still end: a guard
// next to each process waits for that, and the program removes its containers when its input ends.
package redistest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"
)

// started holds what the tests of one binary share, and what Main must remove.
var started struct {
	mu      sync.Mutex
	inMain  bool
	closers []func()
}

// Main runs the tests, removes all servers that they started, and exits.
func Main(m *testing.M) {
	started.inMain = true
	code := m.Run()
	started.mu.Lock()
	for i := len(started.closers) - 1; i >= 0; i-- {
		started.closers[i]()
	}
	os.Exit(code)
}

// MainParallel is like [Main], for tests that mostly wait for a server. It runs eight at a time, on
// any number of cores, unless -parallel says otherwise.
func MainParallel(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	Main(m)
}

// UnlessShort returns full, or short in a short run.
func UnlessShort[T any](full, short T) T {
	if testing.Short() {
		return short
	}
	return full
}

// Share returns how many of n calls a random history makes: all of them if SLIDEGATE_LONG is set,
// as in make matrix, otherwise a third, and a tenth in a short run.
func Share(n int) int {
	switch {
	case testing.Short():
		return n / 10
	case os.Getenv("SLIDEGATE_LONG") == "":
		return n / 3
	}
	return n
}

// atEnd makes Main call f after the tests.
func atEnd(f func()) {
	started.mu.Lock()
	defer started.mu.Unlock()
	started.closers = append(started.closers, f)
}

// shared returns the test binary's shared server.
var shared = sync.OnceValues(func() (*Server, error) {
	host, err := theHost()
	if err != nil {
		return nil, err
	}
	s, err := newServer(host, nil)
	if err != nil {
		return nil, err
	}
	atEnd(s.remove)
	return s, nil
})

var sharedClient = sync.OnceValues(func() (rueidis.Client, error) {
	s, err := shared()
	if err != nil {
		return nil, err
	}
	c, err := rueidis.NewClient(s.options())
	if err != nil {
		return nil, err
	}
	atEnd(c.Close)
	return c, nil
})

// Addr returns the host:port of the server that all tests of the binary share.
func Addr(tb testing.TB) string {
	tb.Helper()
	s, err := shared()
	check(tb, err)
	return s.Addr()
}

// Client returns a client of the shared server. All tests share it: do not close it.
func Client(tb testing.TB) rueidis.Client {
	tb.Helper()
	c, err := sharedClient()
	check(tb, err)
	return c
}

// NewClient returns a client of the shared server with its own connections, which is closed when
// the test ends. Change its options in opt, which may be nil.
func NewClient(tb testing.TB, opt func(*rueidis.ClientOption)) rueidis.Client {
	tb.Helper()
	s, err := shared()
	check(tb, err)
	return s.NewClient(tb, opt)
}

// Options returns the options of [NewClient], changed by opt, which may be nil.
func Options(tb testing.TB, opt func(*rueidis.ClientOption)) rueidis.ClientOption {
	tb.Helper()
	s, err := shared()
	check(tb, err)
	return s.Options(opt)
}

// options returns the options that a limiter should run with. With AlwaysPipelining the client
// reads its connections all the time, so it notices at once when one is closed, and the next call
// is not lost on it. Only ConnWriteTimeout is longer, because the machine that runs tests may be
// busy.
func (s *Server) options() rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress:       []string{s.Addr()},
		TLSConfig:         s.tls,
		ForceSingleClient: true,
		AlwaysPipelining:  true,
	}
}

var keys atomic.Int64

// Key returns a name that no other call in this test binary returns. It is valid as a limiter's
// name (at most 64 of A-Z a-z 0-9 . _ : -), and starts like the test's name.
func Key(tb testing.TB) string {
	tail := fmt.Sprintf("-%d", keys.Add(1))
	name := strings.Map(nameRune, tb.Name())
	return name[:min(len(name), 64-len(tail))] + tail
}

// nameRune replaces characters that a limiter's name cannot have.
func nameRune(r rune) rune {
	if r < 128 && strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-", r) {
		return r
	}
	return '_'
}

// check fails the test if err is not nil. The first test without a server explains why, and later
// ones are brief.
func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(briefly(err))
	}
}

// version returns the name and version of the server behind c, such as "Redis 8.6.3" or "Valkey
// 8.1.1".
func version(ctx context.Context, c rueidis.Client) string {
	info, err := c.Do(ctx, c.B().Info().Section("server").Build()).ToString()
	if err != nil {
		return "unknown: " + err.Error()
	}
	name := "Redis "
	if strings.Contains(info, "valkey_version:") {
		name = "Valkey "
	}
	_, v, _ := strings.Cut(info, strings.ToLower(name[:len(name)-1])+"_version:")
	v, _, _ = strings.Cut(v, "\r")
	return name + v
}
