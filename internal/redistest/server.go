package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// Server is one Redis server that a test has for itself.
type Server struct {
	node node
	ails ailment
	tls  *tls.Config // of its clients; nil: it speaks none

	id      string    // in a cluster
	deposed time.Time // when a replica last took over from it
	elected time.Time // when it last took over

	mu      sync.Mutex
	admin   rueidis.Client   // made when first asked for
	clients []rueidis.Client // of tests
}

// ailment is what a test did to a server and has not yet ended.
type ailment int

const (
	well ailment = iota
	dead
	paused
	isolated
)

// node is one place for a server to run: a container, or a local process.
type node interface {
	// start runs an empty server, always on the same address, and returns when it answers.
	start() error
	// kill ends the server without a farewell, and everything in it.
	kill() error
	// pause freezes it: connections stay open, nobody answers. resume ends that.
	pause() error
	resume() error
	// isolate cuts it off from the other nodes of its cluster, but not from tests. rejoin ends that.
	isolate() error
	rejoin() error
	// addr is where tests reach it, and peer where other nodes do.
	addr() string
	peer() string
}

// launch is how a server starts.
type launch struct {
	args   []string          // flags of redis-server
	files  map[string]string // what is in its directory
	config string            // the one of the files that is its configuration, if one is
	tls    bool              // its port speaks TLS alone
	ready  string            // what it logs when it answers
}

// portFlags have the server listen on a port.
func (l launch) portFlags(port int) []string {
	if l.tls {
		return []string{"--port", "0", "--tls-port", strconv.Itoa(port)}
	}
	return []string{"--port", strconv.Itoa(port)}
}

// commandLine is what follows redis-server: the file comes first.
func (l launch) commandLine(flags ...string) []string {
	flags = append(flags, l.args...)
	if l.config != "" {
		flags = append([]string{l.config}, flags...)
	}
	return flags
}

// host runs servers.
type host interface {
	node(port int, l launch) node
	// cluster is this host for the nodes of one cluster.
	cluster() (host, error)
	// String says where, for the line that tests print at the start.
	fmt.Stringer
}

var errNoCluster = errors.New("the server is in no cluster")

// quiet makes a server keep nothing on disk. More flags may follow, also in conflict.
var quiet = []string{"--save", "", "--appendonly", "no"}

// Start runs a server for this test, with these flags of redis-server, such as
// "--maxmemory", "10mb". It is removed when the test ends.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	host, err := theHost()
	check(tb, err)
	s, err := newServer(host, args)
	check(tb, err)
	tb.Cleanup(s.remove)
	return s
}

// StartTLS is as [Start], for a server that speaks TLS alone. Files are put in
// its directory first, for flags such as "--tls-cert-file"; clients use config.
func StartTLS(tb testing.TB, files map[string]string, config *tls.Config, args ...string) *Server {
	tb.Helper()
	host, err := theHost()
	check(tb, err)
	s, err := launchServer(host, launch{args: append(quiet[:len(quiet):len(quiet)], args...), files: files, tls: true, ready: ready}, config)
	check(tb, err)
	tb.Cleanup(s.remove)
	return s
}

// Serve runs a server for a program that is no test, until stop removes it, or the program ends.
func Serve() (addr string, stop func(), err error) {
	host, err := pickHost()
	if err != nil {
		return "", nil, err
	}
	s, err := newServer(host, nil)
	if err != nil {
		return "", nil, err
	}
	return s.Addr(), s.remove, nil
}

// newServer starts a server with these flags.
func newServer(h host, args []string) (*Server, error) {
	return launchServer(h, launch{args: append(quiet[:len(quiet):len(quiet)], args...), ready: ready}, nil)
}

// launchServer starts a server on a free port. That port can be taken by another
// test binary before the server has it: then it tries again on another.
func launchServer(h host, l launch, config *tls.Config) (s *Server, err error) {
	for range 5 {
		s = &Server{node: h.node(freePort(), l), tls: config}
		if err = s.node.start(); err == nil {
			announce(h, s)
			return s, nil
		}
		if !strings.Contains(err.Error(), "in use") && !strings.Contains(err.Error(), "already allocated") {
			break
		}
	}
	return nil, fmt.Errorf("redistest: %w", err)
}

// lastPort is the last port that was picked, counted from the lowest.
var lastPort = func() *atomic.Int64 {
	var n atomic.Int64
	n.Store(rand.Int64N(portRange))
	return &n
}()

const portRange = 6000

// freePort picks a port below those that systems give to outgoing connections,
// so that a server finds it free again after a restart. The port of its
// cluster bus, 10000 higher, is below them too. It takes one port after the
// other: where a server was killed, no other soon answers in its place.
func freePort() int {
	for {
		port := 16384 + int(lastPort.Add(1)%portRange)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
}

var announced sync.Once

// announce prints, once, what the tests run on.
func announce(h host, s *Server) {
	announced.Do(func() {
		what := "a Redis that does not answer"
		if c, err := rueidis.NewClient(s.options()); err == nil {
			what = version(context.Background(), c)
			c.Close()
		}
		fmt.Fprintf(os.Stderr, "redistest: %s, %s\n", what, h)
	})
}

// Do sends the server one command, on a connection of its own.
func (s *Server) Do(ctx context.Context, command ...string) rueidis.RedisResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.admin == nil {
		c, err := rueidis.NewClient(s.options())
		if err != nil {
			return rueidis.NewErrorResult(err)
		}
		s.admin = c
	}
	return s.admin.Do(ctx, s.admin.B().Arbitrary(command[0]).Args(command[1:]...).Build())
}

// Addr is the server's host:port. It stays the same over Restart.
func (s *Server) Addr() string { return s.node.addr() }

// Client is a new client of this server, closed when the test ends.
func (s *Server) Client(tb testing.TB) rueidis.Client {
	tb.Helper()
	return s.NewClient(tb, nil)
}

// NewClient is as [NewClient], for this server.
func (s *Server) NewClient(tb testing.TB, opt func(*rueidis.ClientOption)) rueidis.Client {
	tb.Helper()
	c := newClient(tb, s.options(), opt)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	return c
}

// Options returns the options of a client of this server, changed by opt, which may be nil.
func (s *Server) Options(opt func(*rueidis.ClientOption)) rueidis.ClientOption {
	return changed(s.options(), opt)
}

func changed(o rueidis.ClientOption, opt func(*rueidis.ClientOption)) rueidis.ClientOption {
	if opt != nil {
		opt(&o)
	}
	return o
}

// newClient is a client with these options, changed by opt, which may be nil. It is closed when the test ends.
func newClient(tb testing.TB, o rueidis.ClientOption, opt func(*rueidis.ClientOption)) rueidis.Client {
	tb.Helper()
	c, err := rueidis.NewClient(changed(o, opt))
	check(tb, err)
	tb.Cleanup(c.Close)
	return c
}

// Restart kills the server and starts it again: empty, on the same address,
// with the same flags. Open connections break.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.suffer(tb, well, func() error { return errors.Join(s.node.kill(), s.node.start()) })
}

// Kill ends the server without a farewell: open connections break, new ones
// are refused. It returns when the server's clients know that: what they send
// on a broken connection is uncertain. Restart brings it back.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	s.suffer(tb, dead, s.node.kill)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		awaitRefusals(tb, c)
	}
}

// refusals in a row come from each of a client's four connections, of which it picks one at random.
const refusals = 40

// awaitRefusals returns when all connections of a client to a dead server are broken, and new ones
// are refused.
func awaitRefusals(tb testing.TB, c rueidis.Client) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for refused := 0; refused < refusals; {
		err := c.Do(ctx, c.B().Ping().Build()).Error()
		switch {
		case errors.Is(err, rueidis.ErrClosing):
			return
		case errors.Is(err, syscall.ECONNREFUSED):
			refused++
		case ctx.Err() != nil:
			tb.Fatalf("redistest: a client of a dead server is not refused: %v", err)
		default:
			refused = 0
		}
	}
}

// Pause freezes the server: connections stay open, and new ones are taken by
// the system, but nobody answers.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	s.suffer(tb, paused, s.node.pause)
}

// Resume ends a Pause: the server goes on where it was, and executes what it
// was sent meanwhile.
func (s *Server) Resume(tb testing.TB) {
	tb.Helper()
	s.suffer(tb, well, s.node.resume)
}

// Isolate cuts a node off from the others of its cluster and from its replica.
// Clients still reach it.
func (s *Server) Isolate(tb testing.TB) {
	tb.Helper()
	s.suffer(tb, isolated, s.node.isolate)
}

// Rejoin ends an isolation.
func (s *Server) Rejoin(tb testing.TB) {
	tb.Helper()
	s.suffer(tb, well, s.node.rejoin)
}

// suffer does something to the server, after which it has this ailment.
func (s *Server) suffer(tb testing.TB, ails ailment, do func() error) {
	tb.Helper()
	check(tb, do())
	s.ails = ails
}

// remove ends the server for good, whatever state it is in.
func (s *Server) remove() {
	if s.admin != nil {
		s.admin.Close()
	}
	if err := s.node.kill(); err != nil {
		fmt.Fprintf(os.Stderr, "redistest: a server is left behind: %v\n", err)
	}
}
