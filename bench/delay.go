package main

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"slices"
	"time"
)

// delayAll forwards each connection to addr and back. It adds extra to every round trip, half of it
// in each direction.
func delayAll(listener net.Listener, addr string, extra time.Duration) error {
	there, back := newLine(extra/2), newLine(extra/2)
	for {
		near, err := listener.Accept()
		if err != nil {
			return err
		}
		far, err := net.Dial("tcp", addr) //nolint:noctx // a local server accepts immediately
		if err != nil {
			return err
		}
		go there.carry(near, far)
		go back.carry(far, near)
	}
}

// line is one direction of a network. All chunks take equally long, so a queue keeps them in order
// of delivery. All connections share a line, because a thread per connection would use the CPU that
// the bench measures.
type line struct {
	delay  time.Duration
	chunks chan chunk
}

// chunk is what a single read returned, and when it must arrive at the other end.
type chunk struct {
	to   net.Conn
	data []byte // empty means the end
	due  time.Time
}

func newLine(delay time.Duration) line {
	l := line{delay, make(chan chunk, 1<<16)}
	go l.deliver()
	return l
}

// carry reads from one end of a connection. It keeps reading while chunks are in transit, so the
// delay does not limit the throughput.
func (l line) carry(from, to net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			l.chunks <- chunk{to, bytes.Clone(buffer[:n]), time.Now().Add(l.delay)}
		}
		if err != nil {
			l.chunks <- chunk{to, nil, time.Now().Add(l.delay)}
			return
		}
	}
}

// deliver writes each chunk when its delay is over. It runs on its own thread, because preciseSleep
// blocks the thread.
func (l line) deliver() {
	runtime.LockOSThread()
	minTimerSlack()
	for c := range l.chunks {
		for left := time.Until(c.due); left > 0; left = time.Until(c.due) {
			preciseSleep(left)
		}
		if len(c.data) == 0 {
			_ = c.to.Close()
		} else if _, err := c.to.Write(c.data); err != nil {
			_ = c.to.Close() // so that both ends notice
		}
	}
}

// ping returns the median round-trip time of PING on a connection to addr.
func ping(addr string) (time.Duration, error) {
	conn, err := net.Dial("tcp", addr) //nolint:noctx // a local server accepts immediately
	if err != nil {
		return 0, err
	}
	defer conn.Close() //nolint:errcheck // nothing more is sent
	took := make([]time.Duration, 101)
	pong := make([]byte, len("+PONG\r\n"))
	for i := range took {
		begin := time.Now()
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(conn, pong); err != nil {
			return 0, err
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
