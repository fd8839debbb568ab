package engine

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/lua"
)

// A server is a fake Redis in memory for a real client, so that the engine can be tested on fake
// time. It counts by a simple rule (counter_test.go). The tests of window.lua and ar1.lua are
// elsewhere.
type server struct {
	nodes []*server // of the same cluster, this one among them; nil: no cluster

	mu       sync.Mutex
	known    bool // the server knows the script
	counters map[string]*counter
	ran      []command // the script calls that were executed, in order
	received []command // all script calls that were received
	gets     int
	dials    int
	refuses  bool          // refuses dials
	slow     time.Duration // how long a dial takes
	dialing  chan struct{} // a dial waits until it is closed; nil: it does not wait
	gate     chan struct{} // commands wait until it is closed; nil: they do not wait
	actions  []action      // for the next script calls
	choose   func(command) action
	conns    map[*serverConn]struct{}
}

// A command is a script call, or a GET.
type command struct {
	name   string // EVAL, EVALSHA, SCRIPT or GET
	key    string
	verb   string
	now    string
	n      int64
	limits []string // Per and Max of each
}

// An action is what the server does with a command. The zero action executes it and replies at
// once.
type action struct {
	delay  time.Duration // before everything else
	reply  string        // instead of executing it; in RESP, without the last line end
	cut    bool          // the connection breaks before the command is executed
	hang   bool          // neither the command nor later ones on the connection are ever executed
	lose   bool          // the connection breaks after the command was executed, before the reply
	silent bool          // the command is executed, but nothing more is sent on the connection
}

// refusal returns an action that replies an error.
func refusal(text string) action { return action{reply: "-" + text} }

func newServer() *server {
	return &server{counters: map[string]*counter{}, known: true, conns: map[*serverConn]struct{}{}}
}

// newCluster returns servers that share the hash slots.
func newCluster(n int) []*server {
	nodes := make([]*server, n)
	for i := range nodes {
		nodes[i] = newServer()
	}
	for _, s := range nodes {
		s.nodes = nodes
	}
	return nodes
}

// hold makes commands wait until release.
func (s *server) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

func (s *server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate != nil {
		close(s.gate)
	}
	s.gate = nil
}

// holdDials makes dials wait until releaseDials.
func (s *server) holdDials() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialing = make(chan struct{})
}

func (s *server) releaseDials() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dialing != nil {
		close(s.dialing)
	}
	s.dialing = nil
}

// slowDials sets how long each dial takes.
func (s *server) slowDials(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = d
}

// next sets the actions for the next script calls.
func (s *server) next(actions ...action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.actions = actions
}

// always sets the action for all commands after those of next.
func (s *server) always(f action) { s.chooseActions(func(command) action { return f }) }

// chooseActions sets a function that chooses the action for each command after those of next.
func (s *server) chooseActions(choose func(command) action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.choose = choose
}

// die makes dials fail, as if no server listened, and closes all connections.
func (s *server) die() {
	s.setRefuses(true)
	s.cut()
}

// revive ends the effect of die on dials.
func (s *server) revive() { s.setRefuses(false) }

func (s *server) setRefuses(refuses bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses = refuses
}

// cut closes all connections. Received commands are still executed.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

// forgetScript makes the script unknown, as after a restart.
func (s *server) forgetScript() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = false
}

// scriptCalls returns the script calls that were executed so far.
func (s *server) scriptCalls() []command {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ran)
}

// receivedCalls returns the script calls that were received so far.
func (s *server) receivedCalls() []command {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.received)
}

// counter returns the counter of a key.
func (s *server) counter(key string) counter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.counters[key]; c != nil {
		return *c
	}
	return counter{}
}

// executed returns how many attempts were executed on all keys.
func (s *server) executed() (attempts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.counters {
		attempts += c.attempts
	}
	return attempts
}

// dialed returns how many times clients have dialled.
func (s *server) dialed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials
}

// dial is the ClientOption.DialCtxFn of a client.
func (s *server) dial(_ context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
	if err := s.awaitDial(d.Timeout); err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	theirs, ours := net.Pipe()
	c := &serverConn{Conn: ours, server: s, closed: make(chan struct{}), tracked: map[string]bool{}}
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	c.start()
	return theirs, nil
}

// dialNodes returns the ClientOption.DialCtxFn of a client of a cluster.
func dialNodes(nodes []*server) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return nodes[integerOf(port)].dial(ctx, address, d, c)
	}
}

// awaitDial waits as long as a dial takes, and returns why it fails, or nil.
func (s *server) awaitDial(timeout time.Duration) error {
	s.mu.Lock()
	s.dials++
	dialing, slow := s.dialing, s.slow
	s.mu.Unlock()
	if slow > 0 {
		pass(slow)
	}
	if dialing != nil {
		select {
		case <-dialing:
		case <-time.After(timeout):
			return context.DeadlineExceeded
		}
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
	server *server
	closed chan struct{} // no more commands come

	get      command // in a transaction
	finished bool    // no more commands are executed

	writing sync.Mutex
	silent  bool            // sends nothing
	tracked map[string]bool // keys that the client reads from its cache; the server's mu guards it
}

// start reads commands as they come, and executes them in order.
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
		args, err := readCommand(in)
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

// readCommand reads an array of strings.
func readCommand(in *bufio.Reader) ([]string, error) {
	n, err := readLength(in, '*')
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		length, err := readLength(in, '$')
		if err != nil {
			return nil, err
		}
		text := make([]byte, length+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, err
		}
		args[i] = string(text[:length])
	}
	return args, nil
}

func readLength(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("%q instead of %c", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// send sends the lines of a reply, unless the client is gone.
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

// execute executes what a client sent.
func (c *serverConn) execute(args []string) {
	switch args[0] {
	case "HELLO":
		c.send("%2", bulk("version"), bulk("7.0.15"), bulk("proto"), ":3")
	case "PING":
		c.awaitGate()
		c.send("+PONG")
	case "CLUSTER":
		c.send(c.server.slots()...)
	case "EVAL", "EVALSHA", "SCRIPT":
		c.perform(newCommand(args))
	case "PTTL":
		c.send("+QUEUED")
	case "GET":
		c.get = newCommand(args)
		c.send("+QUEUED")
	case "EXEC":
		c.perform(c.get)
	default: // CLIENT, MULTI
		c.send("+OK")
	}
}

// slots returns the reply to CLUSTER SLOTS: the nodes have equal shares.
func (s *server) slots() []string {
	n := len(s.nodes)
	reply := []string{fmt.Sprintf("*%d", n)}
	for i := range n {
		first, last := i*keys.Slots/n, (i+1)*keys.Slots/n-1
		reply = append(reply, "*3", number(int64(first)), number(int64(last)), "*3", bulk("node"), number(int64(i)), bulk(fmt.Sprint(i)))
	}
	return reply
}

func newCommand(args []string) command {
	switch args[0] {
	case "GET":
		return command{name: "GET", key: args[1]}
	case "SCRIPT":
		return command{name: "SCRIPT"}
	}
	n, err := strconv.ParseInt(args[6], 10, 64)
	if err != nil {
		panic(err) // a defect of the engine
	}
	return command{name: args[0], key: args[3], verb: args[4], now: args[5], n: n, limits: args[7:]}
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
func (c *serverConn) perform(cmd command) {
	c.awaitGate()
	f := c.server.actionOf(cmd)
	if f.delay > 0 {
		select {
		case <-time.After(f.delay):
		case <-c.closed:
		}
	}
	if f.silent {
		c.fallSilent()
	}
	switch c.finished = f.cut || f.hang || f.lose; {
	case f.hang:
	case f.cut:
		_ = c.Close()
	case f.lose:
		c.server.run(c, cmd)
		_ = c.Close()
	case f.reply != "":
		c.send(f.reply)
	default:
		c.send(c.server.run(c, cmd)...)
	}
}

func (s *server) receive(args []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if args[0] == "EVAL" || args[0] == "EVALSHA" {
		s.received = append(s.received, newCommand(args))
	}
}

// actionOf returns the action for a command.
func (s *server) actionOf(cmd command) action {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.actions) > 0 && cmd.name != "GET" {
		f := s.actions[0]
		s.actions = s.actions[1:]
		return f
	}
	if s.choose == nil {
		return action{}
	}
	return s.choose(cmd)
}

// run executes a command of a client, and returns the lines of the reply.
func (s *server) run(c *serverConn, cmd command) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case cmd.name == "GET":
		s.gets++
		c.tracked[cmd.key] = true
		return s.get(cmd.key)
	case cmd.name == "EVALSHA" && !s.known:
		return []string{"-NOSCRIPT No matching script."}
	}
	s.known = true
	s.ran = append(s.ran, cmd)
	if cmd.name == "SCRIPT" {
		return []string{bulk(lua.Hash(theScript))}
	}
	return s.count(cmd)
}

// get returns the reply to PTTL and GET.
func (s *server) get(key string) []string {
	if k := s.counters[key]; k != nil && k.used > 0 {
		return []string{"*2", ":100000", bulk(fmt.Sprint(k.used))}
	}
	return []string{"*2", ":-2", "_"}
}

// count executes a script call. It notifies clients that cache the value of the key if that
// changes.
func (s *server) count(cmd command) []string {
	k := s.counters[cmd.key]
	if k == nil {
		k = &counter{}
		s.counters[cmd.key] = k
	}
	before := k.used
	integers := k.execute(cmd)
	if k.used != before {
		s.invalidate(cmd.key)
	}
	reply := []string{fmt.Sprintf("*%d", len(integers))}
	for _, n := range integers {
		reply = append(reply, number(n))
	}
	return reply
}

func (s *server) invalidate(key string) {
	for c := range s.conns {
		if c.tracked[key] {
			delete(c.tracked, key)
			c.send(">2", bulk("invalidate"), "*1", bulk(key))
		}
	}
}
