package redistest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
)

// busOffset is what a node's bus is above its port.
const busOffset = 10000

// wires carry what the processes of one cluster send each other, so that a test can cut some of them off. A process announces a
// port of the wires in place of its own.
type wires struct {
	mu   sync.Mutex
	cut  map[int]bool // nodes, by the port that they announce
	open map[*wire]struct{}
}

// wire is one connection from a node to another. From is 0 where it is not known: that of a replica to its master.
type wire struct {
	from, to  int
	near, far net.Conn
}

func newWires() *wires {
	return &wires{cut: map[int]bool{}, open: map[*wire]struct{}{}}
}

// attach returns a port for a node to announce. It leads to the node's own, and the bus to its bus, until the test binary ends.
func (w *wires) attach(own int) (port int, err error) {
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
		go w.serve(clients, port, own, false)
		go w.serve(bus, port, own+busOffset, true)
		return port, nil
	}
	return 0, fmt.Errorf("no port to announce: %w", err)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (w *wires) serve(l net.Listener, to, own int, bus bool) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go w.carry(&wire{to: to, near: c}, loopback(own), bus)
	}
}

// carry is done when either end is. Each message on a bus begins with its kind and size; its bytes 10 and 11 are the port that the sender announces.
func (w *wires) carry(c *wire, own string, bus bool) {
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
	if !w.plug(c) {
		return
	}
	defer w.unplug(c)
	if bus {
		_, _ = far.Write(head[:])
	}
	go func() {
		_, _ = io.Copy(c.near, far)
		_ = c.near.Close()
	}()
	_, _ = io.Copy(far, c.near)
}

// plug counts the wire in, unless one of its nodes is cut off.
func (w *wires) plug(c *wire) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut[c.from] || w.cut[c.to] {
		return false
	}
	w.open[c] = struct{}{}
	return true
}

func (w *wires) unplug(c *wire) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, c)
}

// isolate cuts a node off, or ends that.
func (w *wires) isolate(port int, off bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[port] = off
	for c := range w.open {
		if w.cut[c.from] || w.cut[c.to] {
			_ = c.near.Close()
			_ = c.far.Close()
		}
	}
}

// wired is a process in a cluster, which other nodes reach by wires.
type wired struct {
	process
	wires     *wires
	announced int // 0 before the first start
}

func (p *wired) peer() string { return loopback(p.announced) }

func (p *wired) start() (err error) {
	if p.announced == 0 {
		if p.announced, err = p.wires.attach(p.port); err != nil {
			return err
		}
		p.args = append(p.args, "--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", strconv.Itoa(p.announced),
			"--cluster-announce-bus-port", strconv.Itoa(p.announced+busOffset))
	}
	return p.process.start()
}

func (p *wired) isolate() error { p.wires.isolate(p.announced, true); return nil }
func (p *wired) rejoin() error  { p.wires.isolate(p.announced, false); return nil }
