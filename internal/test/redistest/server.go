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
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// Server is a Redis server for one test, or for all tests of the binary.
type Server struct {
	node  node
	state state
	tls   *tls.Config // for clients; nil means no TLS

	id      string    // the node ID, in a cluster
	deposed time.Time // when a replica last took over from this server
	elected time.Time // when this server last took over

	mu      sync.Mutex
	admin   rueidis.Client   // created on first use
	clients []rueidis.Client // the clients of tests
}

// state is the fault that a test has injected into a server and has not ended yet.
type state int

const (
	healthy state = iota
	dead
	paused
	isolated
)

// node is an environment in which one server runs: a container, or a local process.
type node interface {
	// start starts an empty server, always on the same address, and returns once the server
	// answers.
	start() error
	// kill ends the server abruptly, and drops its data.
	kill() error
	// pause freezes the server: connections stay open, but it does not answer. resume ends a pause.
	pause() error
	resume() error
	// isolate cuts the server off from the other nodes of its cluster, but not from tests. rejoin
	// ends an isolation.
	isolate() error
	rejoin() error
	// addr returns the address for tests, and peer the address for other nodes.
	addr() string
	peer() string
}

// launch describes how a server starts.
type launch struct {
	args   []string          // flags of redis-server
	files  map[string]string // the files in its directory, by name
	config string            // the name of its configuration file, if it has one
	tls    bool              // the server accepts only TLS
	ready  string            // what the server logs when it starts to answer
}

// portFlags returns the flags that make the server listen on port.
func (l launch) portFlags(port int) []string {
	if l.tls {
		return []string{"--port", "0", "--tls-port", strconv.Itoa(port)}
	}
	return []string{"--port", strconv.Itoa(port)}
}

// commandLine returns the arguments of redis-server. The configuration file comes first.
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
	// cluster returns a host for the nodes of a new cluster.
	cluster() (host, error)
	// String describes the host, for the line that tests print at the start.
	fmt.Stringer
}

var errNoCluster = errors.New("the server is not in a cluster")

// quiet makes a server write nothing to disk. Later flags override these.
var quiet = []string{"--save", "", "--appendonly", "no"}

// Start starts a server for the test, with redis-server flags such as "--maxmemory", "10mb". A
// server with flags is removed when the test ends. A server without flags may have served another
// test, and later tests may reuse it: see giveBack.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	if len(args) == 0 {
		return borrow(tb)
	}
	return startIn(tb, hostOf(tb), quietly(args...), nil)
}

// startIn starts a server for the test, whose clients use config.
func startIn(tb testing.TB, h host, l launch, config *tls.Config) *Server {
	tb.Helper()
	s, err := launchServer(h, l, config)
	check(tb, err)
	tb.Cleanup(s.remove)
	return s
}

// hostOf returns the host on which this test binary runs its servers.
func hostOf(tb testing.TB) host {
	tb.Helper()
	h, err := theHost()
	check(tb, err)
	return h
}

// quietly returns how to start a server with the given flags that writes nothing to disk.
func quietly(args ...string) launch {
	return launch{args: append(quiet[:len(quiet):len(quiet)], args...), ready: ready}
}

// StartTLS is like [Start], but the server accepts only TLS, and its clients use config. It first
// puts files into the server's directory, for flags such as "--tls-cert-file".
func StartTLS(tb testing.TB, files map[string]string, config *tls.Config, args ...string) *Server {
	tb.Helper()
	l := quietly(args...)
	l.files, l.tls = files, true
	return startIn(tb, hostOf(tb), l, config)
}

// Serve starts a server for a program that is not a test. The server runs until stop is called or
// the program ends.
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

// newServer starts a server with the given flags.
func newServer(h host, args []string) (*Server, error) {
	return launchServer(h, quietly(args...), nil)
}

// launchServer starts a server on a free port. If another test binary takes that port first,
// launchServer tries another port.
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

// All ports are below those that systems assign to outgoing connections, so that a server's port is
// still free when the server restarts. So are the ports of cluster buses, which are higher by
// 10000.
const (
	firstPort  = 16384
	portBlock  = 100
	portBlocks = 60
)

// ports holds the unused ports in the block of ports that this test binary has taken last. The
// binary listens on the first port of each of its blocks until it ends, so that other test binaries
// take other blocks. So no other server ever answers on the port of a killed server.
var ports struct {
	mu         sync.Mutex
	next, last int
	blocks     []net.Listener // referenced here because the garbage collector would close them
}

// freePort returns a free port.
func freePort() int {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for {
		if ports.next == ports.last {
			ports.next = takeBlock()
			ports.last = ports.next + portBlock - 1
		}
		ports.next++
		if l, err := net.Listen("tcp", loopback(ports.next)); err == nil {
			_ = l.Close()
			return ports.next
		}
	}
}

// takeBlock takes a block by listening on its first port, which it returns.
func takeBlock() (first int) {
	for {
		first = firstPort + portBlock*rand.IntN(portBlocks)
		if l, err := net.Listen("tcp", loopback(first)); err == nil {
			ports.blocks = append(ports.blocks, l)
			return first
		}
	}
}

var announced sync.Once

// announce prints which server the tests run on, once.
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

// Do sends one command to the server, on a connection that only Do uses.
func (s *Server) Do(ctx context.Context, command ...string) rueidis.RedisResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.admin == nil {
		o := s.options()
		o.PipelineMultiplex = -1 // one connection, because CLIENT KILL spares the connection that sends it
		c, err := rueidis.NewClient(o)
		if err != nil {
			return rueidis.NewErrorResult(err)
		}
		s.admin = c
	}
	return s.admin.Do(ctx, s.admin.B().Arbitrary(command[0]).Args(command[1:]...).Build())
}

// Addr returns the server's host:port, which a restart does not change.
func (s *Server) Addr() string { return s.node.addr() }

// Client returns a new client of this server. The client is closed when the test ends.
func (s *Server) Client(tb testing.TB) rueidis.Client {
	tb.Helper()
	return s.NewClient(tb, nil)
}

// NewClient is like the function [NewClient], for this server instead of the shared one.
func (s *Server) NewClient(tb testing.TB, opt func(*rueidis.ClientOption)) rueidis.Client {
	tb.Helper()
	c := newClient(tb, s.options(), opt)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	return c
}

// Options returns the options for a client of this server. The function opt can change the options;
// it may be nil.
func (s *Server) Options(opt func(*rueidis.ClientOption)) rueidis.ClientOption {
	return changed(s.options(), opt)
}

func changed(o rueidis.ClientOption, opt func(*rueidis.ClientOption)) rueidis.ClientOption {
	if opt != nil {
		opt(&o)
	}
	return o
}

// newClient returns a new client with the options o, which opt can change if it is not nil. The
// client is closed when the test ends.
func newClient(tb testing.TB, o rueidis.ClientOption, opt func(*rueidis.ClientOption)) rueidis.Client {
	tb.Helper()
	c, err := rueidis.NewClient(changed(o, opt))
	check(tb, err)
	tb.Cleanup(c.Close)
	return c
}

// Restart kills the server and starts an empty one with the same address and flags. Open
// connections break.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.setState(tb, healthy, func() error { return errors.Join(s.node.kill(), s.node.start()) })
}

// Kill ends the server abruptly: open connections break, and new connections are refused. Kill
// waits until the server's clients have noticed, because the outcome of a request on a broken
// connection is uncertain. Restart starts the server again.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	s.setState(tb, dead, s.node.kill)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		awaitRefusals(tb, c)
	}
}

// refusals is how many consecutive refusals prove that all four connections of a client are broken.
// For each request, the client picks a connection at random.
const refusals = 40

// awaitRefusals waits until a client has noticed that all its connections to a dead server are
// broken, and that new connections are refused.
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

// Pause freezes the server: connections stay open, and the system accepts new ones, but the server
// does not answer.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	s.setState(tb, paused, s.node.pause)
}

// Resume ends a Pause: the server continues, and executes the commands that it received during the
// pause.
func (s *Server) Resume(tb testing.TB) {
	tb.Helper()
	s.setState(tb, healthy, s.node.resume)
}

// Isolate cuts the node off from the other nodes of its cluster. Clients can still reach it.
func (s *Server) Isolate(tb testing.TB) {
	tb.Helper()
	s.setState(tb, isolated, s.node.isolate)
}

// Rejoin ends an isolation.
func (s *Server) Rejoin(tb testing.TB) {
	tb.Helper()
	s.setState(tb, healthy, s.node.rejoin)
}

// setState calls do, which injects or ends a fault, and records the new state.
func (s *Server) setState(tb testing.TB, to state, do func() error) {
	tb.Helper()
	check(tb, do())
	s.state = to
}

func (s *Server) closeAdmin() {
	if s.admin != nil {
		s.admin.Close()
	}
}

// remove ends the server for good, whatever its state.
func (s *Server) remove() {
	s.closeAdmin()
	if err := s.node.kill(); err != nil {
		fmt.Fprintf(os.Stderr, "redistest: a server is left behind: %v\n", err)
	}
}
