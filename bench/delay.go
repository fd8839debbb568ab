package main

import (
	"io"
	"net"
	"runtime"
	"slices"
	"time"
)

// delayAll forwards each connection to addr and back. It adds extra to each round trip, half of it
// in each direction.
func delayAll(listener net.Listener, addr string, extra time.Duration) error {
	for {
		near, err := listener.Accept()
		if err != nil {
			return err
		}
		far, err := net.Dial("tcp", addr) //nolint:noctx // a local server accepts at once
		if err != nil {
			return err
		}
		go delayOne(near, far, extra/2)
		go delayOne(far, near, extra/2)
	}
}

// chunk is what one read returned, and when it may be written.
type chunk struct {
	data []byte
	due  time.Time
}

// delayOne copies one direction of a connection. Reading goes on while chunks wait, so the delay
// does not limit the throughput.
func delayOne(from, to net.Conn, delay time.Duration) {
	chunks := make(chan chunk, 4096)
	go writeWhenDue(to, chunks)
	for {
		data := make([]byte, 16<<10)
		n, err := from.Read(data)
		if n > 0 {
			chunks <- chunk{data[:n], time.Now().Add(delay)}
		}
		if err != nil {
			close(chunks)
			return
		}
	}
}

// writeWhenDue writes the chunks in their order, each when it is due, and then closes the
// connection. It has a thread of its own, since nap blocks it.
func writeWhenDue(to net.Conn, chunks <-chan chunk) {
	runtime.LockOSThread()
	sharpenNaps()
	defer to.Close() //nolint:errcheck // nobody waits for the answer
	for c := range chunks {
		for left := time.Until(c.due); left > 0; left = time.Until(c.due) {
			nap(left)
		}
		if _, err := to.Write(c.data); err != nil {
			go func() { // the reader may wait for room
				for range chunks { //nolint:revive // nothing to do
				}
			}()
			return
		}
	}
}

// ping returns the median round trip of PING on a connection to addr.
func ping(addr string) (time.Duration, error) {
	conn, err := net.Dial("tcp", addr) //nolint:noctx // a local server accepts at once
	if err != nil {
		return 0, err
	}
	defer conn.Close() //nolint:errcheck // it has served
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
