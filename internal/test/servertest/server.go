// Package servertest provides a fake server for the tests of packages send and limiter.
package servertest

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/lua"
)

// A Server is a fake Redis server in memory. A real client connects to it, so that the pipeline and
// package limiter can be tested with fake time. It counts by a simple rule: see Counter. window.lua
// and ar1.lua are tested elsewhere.
type Server struct {
	nodes []*Server // the nodes of the cluster, including this one; nil if there is no cluster

	mu       sync.Mutex
	known    map[string]bool // known scripts, by hash; nil if the server knows all scripts
	counters map[string]*Counter
	ran      []Command // script calls that were executed, in order
	received []Command // all script calls that were received
	keys     Keys
	marks    map[string]string // of probe.lua
	proofs   []int             // how many keys each call of probe.lua has marked
	dials    int
	refuses  bool          // refuses dials
	slow     time.Duration // how long a dial takes
	gate     chan struct{} // commands wait until it is closed; nil if they do not wait
	actions  []Action      // for the next script calls
	choose   func(Command) Action
	conns    map[*serverConn]struct{}
}

// A Command is a script call. Calls of probe.lua are not Commands.
type Command struct {
	Name   string // EVAL or EVALSHA
	Script string // the script's source or hash
	Key    string
	Verb   string
	Time   string
	Units  int64
	Rest   []string  // the arguments after the units: in tests that have limits, Per and Max of each limit
	More   []Command // the call's other keys, with the same other fields
}

// An Action is what the server does with a command. With the zero Action, the server executes the
// command and replies immediately.
type Action struct {
	Delay  time.Duration // before everything else
	Reply  string        // sent instead of executing the command; in RESP, without the final line ending
	Cut    bool          // the connection breaks before the command is executed
	Hang   bool          // neither the command nor later ones on the connection are ever executed
	Lose   bool          // the connection breaks after the command is executed, before the reply
	Forget bool          // the server first forgets all scripts
	Silent bool          // the command is executed, but nothing more is sent on the connection
}

// Refusal returns an Action that replies with the error text.
func Refusal(text string) Action { return Action{Reply: "-" + text} }

// New returns a server that is not a cluster.
func New() *Server {
	return &Server{counters: map[string]*Counter{}, conns: map[*serverConn]struct{}{}, marks: map[string]string{}}
}

// Keys specifies how a server handles calls for several keys.
type Keys int

// The kinds of servers.
const (
	OneKey  Keys = iota // refuses such calls, as a cluster node does
	AllKeys             // accepts such calls
	Divided             // accepts such calls, but calls for a single key go elsewhere, as behind some proxies
)

// SetKeys sets how the server handles calls for several keys. The default is OneKey.
func (s *Server) SetKeys(keys Keys) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = keys
}

// Proofs returns how many keys each call of probe.lua has marked.
func (s *Server) Proofs() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.proofs)
}

// NewCluster returns n servers that share the hash slots.
func NewCluster(n int) []*Server {
	nodes := make([]*Server, n)
	for i := range nodes {
		nodes[i] = New()
	}
	for _, s := range nodes {
		s.nodes = nodes
	}
	return nodes
}

// Hold makes commands wait until Release.
func (s *Server) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

// Release ends Hold.
func (s *Server) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate != nil {
		close(s.gate)
	}
	s.gate = nil
}

// SlowDials makes each dial take the time d. It fails if the client does not wait that long.
func (s *Server) SlowDials(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = d
}

// Next sets the actions for the next script calls.
func (s *Server) Next(actions ...Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.actions = actions
}

// Always sets the action for all commands after those that Next applies to.
func (s *Server) Always(f Action) { s.Choose(func(Command) Action { return f }) }

// Choose sets a function that chooses the action for each command after those that Next applies to.
func (s *Server) Choose(choose func(Command) Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.choose = choose
}

// Die makes dials fail, as if no server listened, and closes all connections.
func (s *Server) Die() {
	s.setRefuses(true)
	s.Cut()
}

// Revive ends the effect of Die on dials.
func (s *Server) Revive() { s.setRefuses(false) }

func (s *Server) setRefuses(refuses bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses = refuses
}

// Cut closes all connections. Received commands are still executed.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

// ForgetScripts makes the server forget all scripts, as after a restart.
func (s *Server) ForgetScripts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = map[string]bool{}
}

// Ran returns the script calls executed so far.
func (s *Server) Ran() []Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ran)
}

// Received returns the script calls received so far.
func (s *Server) Received() []Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.received)
}

// ClearCalls resets what Ran and Received return.
func (s *Server) ClearCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran, s.received = nil, nil
}

// Counter returns a copy of the counter for key.
func (s *Server) Counter(key string) Counter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.counters[key]; c != nil {
		return *c
	}
	return Counter{}
}

// Executed returns how many attempts were executed, for all keys.
func (s *Server) Executed() (attempts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.counters {
		attempts += c.Attempts
	}
	return attempts
}

// Dialed returns how many times clients have dialed.
func (s *Server) Dialed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials
}

// dial is a client's ClientOption.DialCtxFn.
func (s *Server) dial(_ context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
	if err := s.awaitDial(d.Timeout); err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	theirs, ours := net.Pipe()
	c := &serverConn{Conn: ours, server: s, closed: make(chan struct{})}
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	c.start()
	return theirs, nil
}

// dialNodes returns the ClientOption.DialCtxFn for a client of a cluster.
func dialNodes(nodes []*Server) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return nodes[integerOf(port)].dial(ctx, address, d, c)
	}
}

// awaitDial waits as long as a dial takes. It returns an error if the dial fails.
func (s *Server) awaitDial(timeout time.Duration) error {
	s.mu.Lock()
	s.dials++
	slow := s.slow
	s.mu.Unlock()
	if slow > 0 {
		Pass(min(slow, timeout))
	}
	if slow > timeout {
		return context.DeadlineExceeded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses {
		return syscall.ECONNREFUSED
	}
	return nil
}

// A serverConn serves one client.
type serverConn struct {
	net.Conn
	server *Server
	closed chan struct{} // closed when no more commands arrive

	finished bool // no more commands are executed

	writing sync.Mutex
	silent  bool // nothing is sent any more
}

// start starts to read commands as they arrive, and to execute them in order.
func (c *serverConn) start() {
	commands := make(chan []string, 1<<13)
	go c.read(commands)
	go func() {
		for args := range commands {
			if !c.finished {
				c.execute(args)
			}
		}
	}()
}

func (c *serverConn) read(commands chan<- []string) {
	defer close(commands)
	for in := bufio.NewReader(c); ; {
		_, args, err := redistest.ReadCommand(in)
		if err != nil {
			break
		}
		c.server.receive(args)
		commands <- args
	}
	_ = c.Close()
	close(c.closed)
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	delete(c.server.conns, c)
}

// send sends the lines of a reply, unless the connection is silent.
func (c *serverConn) send(lines ...string) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if !c.silent {
		_, _ = io.WriteString(c, strings.Join(lines, "\r\n")+"\r\n")
	}
}

func (c *serverConn) fallSilent() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.silent = true
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s", len(s), s) }

func number(n int64) string { return fmt.Sprintf(":%d", n) }

// execute executes a command from the client.
func (c *serverConn) execute(args []string) {
	switch args[0] {
	case "HELLO":
		c.send("%2", bulk("version"), bulk("7.0.15"), bulk("proto"), ":3")
	case "PING":
		c.awaitGate()
		c.send("+PONG")
	case "CLUSTER":
		c.send(c.server.slots()...)
	case "EVAL", "EVALSHA":
		if isProbe(args) {
			c.send(c.server.probe(args)...)
		} else {
			c.perform(newCommand(args))
		}
	default: // CLIENT
		c.send("+OK")
	}
}

// slots returns the reply to CLUSTER SLOTS. The nodes have equal shares.
func (s *Server) slots() []string {
	n := len(s.nodes)
	reply := []string{fmt.Sprintf("*%d", n)}
	for i := range n {
		first, last := i*keys.Slots/n, (i+1)*keys.Slots/n-1
		reply = append(reply, "*3", number(int64(first)), number(int64(last)), "*3", bulk("node"), number(int64(i)), bulk(fmt.Sprint(i)))
	}
	return reply
}

func newCommand(args []string) Command {
	n := int(integerOf(args[2]))
	all := make([]Command, n)
	for i := range all {
		all[i] = Command{
			Name: args[0], Script: args[1], Key: args[3+i], Verb: args[3+n], Time: args[4+n],
			Units: integerOf(args[5+n+i]), Rest: args[5+2*n:],
		}
	}
	all[0].More = all[1:]
	return all[0]
}

const crossSlot = "-CROSSSLOT Keys in request don't hash to the same slot"

// isProbe reports whether args is a call of probe.lua.
func isProbe(args []string) bool {
	return len(args) > 4 && (args[len(args)-2] == "mark" || args[len(args)-2] == "find")
}

// probe executes probe.lua.
func (s *Server) probe(args []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if args[len(args)-2] == "mark" {
		return s.mark(args[3:len(args)-2], args[len(args)-1])
	}
	found := int64(0)
	if s.keys == AllKeys && s.marks[args[3]] == args[len(args)-1] {
		found = 1
	}
	return []string{"*1", number(found)}
}

// mark marks keys, unless the server accepts only one key.
func (s *Server) mark(keys []string, value string) []string {
	if s.proofs = append(s.proofs, len(keys)); s.keys == OneKey {
		return []string{crossSlot}
	}
	for _, key := range keys {
		s.marks[key] = value
	}
	return []string{"*1", number(int64(len(keys)))}
}

// awaitGate waits while the server holds commands.
func (c *serverConn) awaitGate() {
	c.server.mu.Lock()
	gate := c.server.gate
	c.server.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

// perform performs the action for a command.
func (c *serverConn) perform(cmd Command) {
	c.awaitGate()
	f := c.server.actionOf(cmd)
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-c.closed:
		}
	}
	if f.Forget {
		c.server.ForgetScripts()
	}
	if f.Silent {
		c.fallSilent()
	}
	switch c.finished = f.Cut || f.Hang || f.Lose; {
	case f.Hang:
	case f.Cut:
		_ = c.Close()
	case f.Lose:
		c.server.run(cmd)
		_ = c.Close()
	case f.Reply != "":
		c.send(f.Reply)
	default:
		c.send(c.server.run(cmd)...)
	}
}

func (s *Server) receive(args []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (args[0] == "EVAL" || args[0] == "EVALSHA") && !isProbe(args) {
		s.received = append(s.received, newCommand(args))
	}
}

// actionOf returns the action for a command.
func (s *Server) actionOf(cmd Command) Action {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.actions) > 0 {
		f := s.actions[0]
		s.actions = s.actions[1:]
		return f
	}
	if s.choose == nil {
		return Action{}
	}
	return s.choose(cmd)
}

// run executes a command, and returns the lines of the reply.
func (s *Server) run(cmd Command) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case cmd.Name == "EVALSHA" && s.known != nil && !s.known[cmd.Script]:
		return []string{"-NOSCRIPT No matching script."}
	case cmd.Name != "EVALSHA" && s.known != nil:
		s.known[lua.New(cmd.Script).Hash] = true
	}
	s.ran = append(s.ran, cmd)
	if len(cmd.More) > 0 && s.keys == OneKey {
		return []string{crossSlot}
	}
	integers := s.count(cmd)
	for _, other := range cmd.More {
		integers = append(integers, s.count(other)...)
	}
	reply := []string{fmt.Sprintf("*%d", len(integers))}
	for _, n := range integers {
		reply = append(reply, number(n))
	}
	return reply
}

// count executes a script call for one key.
func (s *Server) count(cmd Command) []int64 {
	k := s.counters[cmd.Key]
	if k == nil {
		k = &Counter{}
		s.counters[cmd.Key] = k
	}
	return k.execute(cmd)
}
