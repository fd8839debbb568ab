// Package redistest provides real Redis servers for tests.
//
// A package whose tests use it needs this function:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// All tests then share one server, which is never emptied, and use different keys, from [Key]. A
// test that needs a server with special flags, or that breaks its server, calls [Start]. A test
// that needs several shards calls [Cluster]. A test that moves slots or breaks nodes calls
// [Replicated].
//
// Servers start on first use, so a test binary that only lists its tests starts none. They run in
// Docker if Docker is available, and otherwise as redis-server or valkey-server processes. The
// program cluster_test/containers controls Docker, so that this module does not require
// testcontainers. Environment variables control the choice:
//
//   - SLIDEGATE_REDIS_IMAGE is the image to run in Docker.
//   - SLIDEGATE_DOCKER=1 makes tests fail if Docker is not available; with 0 they use processes.
//   - SLIDEGATE_INSTALL=1 allows tests to install redis-server with apt-get if there is no other
//     server, and the packages that [Program] and [Tool] need. Without it, tests fail and report
//     what to install.
//   - TESTCONTAINERS_... are the variables of testcontainers-go; see its documentation.
//
// A test calls [Needs] if it needs a feature that some servers lack.
//
// All servers are removed at the end. This holds even if the test binary is killed: each process
// has a guard that notices this, and cluster_test/containers removes its containers when its input
// ends.
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
	"time"

	"github.com/redis/rueidis"
)

// started holds the functions that Main calls after the tests.
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

// MainParallel is like [Main], for tests that mostly wait for a server. It runs eight tests at a
// time, on any number of cores, unless -parallel sets another number.
func MainParallel(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	Main(m)
}

// UnlessShort returns full or, with go test -short, short.
func UnlessShort[T any](full, short T) T {
	if testing.Short() {
		return short
	}
	return full
}

// AtOnce calls do for each index below n, each in a goroutine of its own, and returns once all calls
// have returned.
func AtOnce(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// Must returns v, or panics if err is not nil.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Eventually waits until done returns true. It fails the test after a minute.
func Eventually(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for late := time.After(time.Minute); !done(); {
		select {
		case <-again.C:
		case <-late:
			tb.Fatalf("waited a minute for this: %s", what)
		}
	}
}

// Share returns how many of n calls a random history makes: all of them if SLIDEGATE_LONG is set,
// as in make matrix, a tenth with go test -short, and otherwise a third.
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

// Client returns a client of the shared server. All tests share the client: do not close it.
func Client(tb testing.TB) rueidis.Client {
	tb.Helper()
	c, err := sharedClient()
	check(tb, err)
	return c
}

// NewClient returns a new client of the shared server. The client is closed when the test ends. The
// function opt can change the options; it may be nil.
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

// options returns the options that are recommended for limiters. With AlwaysPipelining, the client
// reads from its connections all the time. So it notices immediately when a connection is closed,
// and does not lose the next call on it. Only ConnWriteTimeout is longer than recommended, because
// the machine that runs the tests may be busy.
func (s *Server) options() rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress:       []string{s.Addr()},
		TLSConfig:         s.tls,
		ForceSingleClient: true,
		AlwaysPipelining:  true,
	}
}

var keys atomic.Int64

// Key returns a name that no other call in this test binary returns. It is a valid limiter name (at
// most 64 of A-Z a-z 0-9 . _ : -), and starts with the test's name, possibly shortened.
func Key(tb testing.TB) string {
	tail := fmt.Sprintf("-%d", keys.Add(1))
	name := strings.Map(nameRune, tb.Name())
	return name[:min(len(name), 64-len(tail))] + tail
}

// nameRune replaces characters that a limiter's name cannot contain.
func nameRune(r rune) rune {
	if r < 128 && strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-", r) {
		return r
	}
	return '_'
}

// check fails the test if err is not nil. If there is no server, only the first failing test
// explains why.
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
