package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// neighbour is another process that uses the same server and sends one PING after another. How long
// these take shows how long the server makes other clients wait.
type neighbour struct {
	child *child

	mu    sync.Mutex
	pings []onePing
}

// onePing records when a PING was sent, in ns since 1970, and how many ns it took.
type onePing struct{ at, took int64 }

// pingPause is the time between two PINGs.
const pingPause = 300 * time.Microsecond

// pingMetrics lists the metrics that a neighbour measures.
var pingMetrics = []metric{
	{"median PING of another, µs", func(s slice) float64 { return s.ping50 }, 0},
	{"99 % PING of another, µs", func(s slice) float64 { return s.ping99 }, 0},
}

// neighbourOn starts a neighbour that uses the server at the given address.
func neighbourOn(addr string) (*neighbour, error) {
	c, err := startChild("ping", addr)
	if err != nil {
		return nil, err
	}
	n := &neighbour{child: c}
	go n.read()
	return n, nil
}

// read reads what the child prints until it exits.
func (n *neighbour) read() {
	for {
		text, err := n.child.line()
		var p onePing
		if err != nil {
			return
		}
		if _, err := fmt.Sscan(text, &p.at, &p.took); err == nil {
			n.mu.Lock()
			n.pings = append(n.pings, p)
			n.mu.Unlock()
		}
	}
}

// between returns the median and the 99th percentile of the PINGs sent between begin and end, in
// µs. It forgets all earlier ones.
func (n *neighbour) between(begin, end time.Time) (p50, p99 float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var took []int64
	for _, p := range n.pings {
		if begin.UnixNano() <= p.at && p.at < end.UnixNano() {
			took = append(took, p.took)
		}
	}
	n.pings = nil
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return float64(took[len(took)/2]) / 1000, float64(took[len(took)*99/100]) / 1000
}

// pingForever runs in a neighbour's process.
func pingForever(args []string) error {
	conn, err := net.Dial("tcp", args[0]) //nolint:noctx // a local server accepts immediately
	if err != nil {
		return err
	}
	minTimerSlack()
	for in := bufio.NewReader(conn); ; preciseSleep(pingPause) {
		begin := time.Now()
		if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
			return err
		}
		if _, err := in.ReadString('\n'); err != nil {
			return err
		}
		fmt.Println(begin.UnixNano(), time.Since(begin).Nanoseconds())
	}
}
