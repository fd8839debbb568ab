package redistest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
)

// busOffset is the distance from a node's port to that of its cluster bus.
const busOffset = 10000

// A proxy forwards the traffic between the processes of a cluster, so that a test can cut off some
// of them. Each process announces a port of the proxy instead of its own port.
type proxy struct {
	mu   sync.Mutex
	cut  map[int]bool // nodes that are cut off, by the ports that they announce
	open map[*link]struct{}
}

// link is a connection from one node to another. If from is unknown, it is 0, as for a replica's
// connection to its master.
type link struct {
	from, to  int
	near, far net.Conn
}

func newProxy() *proxy {
	return &proxy{cut: map[int]bool{}, open: map[*link]struct{}{}}
}

// attach returns a port for a node to announce. Until the test binary ends, the proxy forwards
// connections to that port and to its bus port to the node's own ports.
func (p *proxy) attach(own int) (port int, err error) {
	for range 50 {
		port = freePort()
		var clients, bus net.Listener
		if clients, err = net.Listen("tcp", loopback(port)); err != nil {
			continue
		}
		if bus, err = net.Listen("tcp", loopback(port+busOffset)); err != nil {
			_ = clients.Close()
			continue
		}
		go p.serve(clients, port, own, false)
		go p.serve(bus, port, own+busOffset, true)
		return port, nil
	}
	return 0, fmt.Errorf("no port to announce: %w", err)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (p *proxy) serve(l net.Listener, to, own int, bus bool) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go p.forward(&link{to: to, near: c}, loopback(own), bus)
	}
}

// forward forwards a connection until either end closes it. On a bus, bytes 10 and 11 of each
// message contain the port that the sender announces.
func (p *proxy) forward(c *link, own string, bus bool) {
	defer c.near.Close()
	var head [12]byte
	if bus {
		if _, err := io.ReadFull(c.near, head[:]); err != nil {
			return
		}
		c.from = int(binary.BigEndian.Uint16(head[10:]))
	}
	far, err := net.Dial("tcp", own)
	if err != nil {
		return
	}
	defer far.Close()
	c.far = far
	if !p.add(c) {
		return
	}
	defer p.remove(c)
	if bus {
		_, _ = far.Write(head[:])
	}
	go func() {
		_, _ = io.Copy(c.near, far)
		_ = c.near.Close()
	}()
	_, _ = io.Copy(far, c.near)
}

// add registers a connection, unless one of its nodes is cut off. It reports whether it has
// registered the connection.
func (p *proxy) add(c *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut[c.from] || p.cut[c.to] {
		return false
	}
	p.open[c] = struct{}{}
	return true
}

func (p *proxy) remove(c *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// isolate cuts off the node that announces port or, if off is false, reconnects it.
func (p *proxy) isolate(port int, off bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut[port] = off
	for c := range p.open {
		if p.cut[c.from] || p.cut[c.to] {
			_ = c.near.Close()
			_ = c.far.Close()
		}
	}
}

// proxied is a process in a cluster. Other nodes reach it through the proxy.
type proxied struct {
	process
	proxy     *proxy
	announced int // 0 before the first start
}

func (p *proxied) peer() string { return loopback(p.announced) }

func (p *proxied) start() (err error) {
	if p.announced == 0 {
		if p.announced, err = p.proxy.attach(p.port); err != nil {
			return err
		}
		p.args = append(p.args, "--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", strconv.Itoa(p.announced),
			"--cluster-announce-bus-port", strconv.Itoa(p.announced+busOffset))
	}
	return p.process.start()
}

func (p *proxied) isolate() error { p.proxy.isolate(p.announced, true); return nil }
func (p *proxied) rejoin() error  { p.proxy.isolate(p.announced, false); return nil }
