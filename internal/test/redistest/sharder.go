package redistest

import (
	"bufio"
	"hash/fnv"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"
)

// A Sharder is a proxy in front of two servers, like twemproxy. Clients take it for a single
// server. It sends each command to the server of the command's first key, even if the command has
// several keys.
type Sharder struct {
	Servers [2]*Server

	listener net.Listener
	second   atomic.Uint64 // how many of a thousand keys are on the second server
	byName   atomic.Bool
}

// NewSharder starts a Sharder for the test. Of a thousand keys, second are on the second server.
func NewSharder(tb testing.TB, second uint64) *Sharder {
	tb.Helper()
	s := &Sharder{Servers: [2]*Server{Start(tb), Start(tb)}}
	s.Share(second)
	var err error
	s.listener, err = net.Listen("tcp", loopback(0))
	check(tb, err)
	tb.Cleanup(func() { _ = s.listener.Close() })
	go s.serve()
	return s
}

// Share changes the distribution of keys: of a thousand keys, second are on the second server. It
// does not move existing keys.
func (s *Sharder) Share(second uint64) { s.second.Store(second) }

// ByName makes all keys that have the same text before the hash tag belong to the same server, as
// with Envoy's prefix_routes.
func (s *Sharder) ByName() { s.byName.Store(true) }

// Options returns the options for a client of the proxy. The function opt can change the options;
// it may be nil.
func (s *Sharder) Options(opt func(*rueidis.ClientOption)) rueidis.ClientOption {
	o := s.Servers[0].options()
	o.InitAddress = []string{s.listener.Addr().String()}
	return changed(o, opt)
}

// Of returns the index of the server to which key belongs.
func (s *Sharder) Of(key string) int {
	if s.byName.Load() {
		key, _, _ = strings.Cut(key, "{")
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key))
	if hash.Sum64()%1000 < s.second.Load() {
		return 1
	}
	return 0
}

func (s *Sharder) serve() {
	for {
		client, err := s.listener.Accept()
		if err != nil {
			return
		}
		go s.forward(client)
	}
}

// forward serves a client until the client or a server closes its connection.
func (s *Sharder) forward(client net.Conn) {
	defer client.Close()
	var servers [2]net.Conn
	for i := range servers {
		var err error
		if servers[i], err = net.Dial("tcp", s.Servers[i].Addr()); err != nil {
			return
		}
		defer servers[i].Close()
	}
	sent := make(chan []int, 1024)
	defer close(sent)
	go answer(client, servers, sent)
	for in := bufio.NewReader(client); ; {
		raw, args, err := ReadCommand(in)
		if err != nil {
			return
		}
		to := s.route(args)
		for _, i := range to {
			if _, err := servers[i].Write(raw); err != nil {
				return
			}
		}
		sent <- to
	}
}

// route returns the indices of the servers that get a command: both, if the command has no key.
func (s *Sharder) route(args []string) []int {
	if keys, _ := scriptKeys(args); len(keys) > 0 {
		return []int{s.Of(keys[0])}
	}
	switch strings.ToUpper(args[0]) {
	case "GET", "SET", "DEL", "DUMP", "PTTL", "TYPE":
		return []int{s.Of(args[1])}
	}
	return []int{0, 1}
}

// answer sends the replies to commands to the client, in order. If both servers got a command, it
// sends the reply of the first server.
func answer(client net.Conn, servers [2]net.Conn, sent <-chan []int) {
	out := bufio.NewWriter(client)
	from := [2]*bufio.Reader{bufio.NewReader(servers[0]), bufio.NewReader(servers[1])}
	for to := range sent {
		err := copyReply(out, from[to[0]])
		if err == nil && len(to) > 1 {
			err = copyReply(io.Discard, from[to[1]])
		}
		if err == nil && len(sent) == 0 {
			err = out.Flush()
		}
		if err != nil {
			_ = client.Close() // ends forward
			for range sent {
			}
			return
		}
	}
}
