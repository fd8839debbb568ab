package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
)

// server is a redis-server of this program's own, on loopback, which keeps nothing on disk.
type server struct {
	addr  string
	guard *exec.Cmd
	hold  io.Closer // closed, by us or by our end, it ends the guard and the server
}

// guard runs a server in an empty directory until its input ends, however this program ends.
const guard = `
trap '' HUP INT TERM
dir=$(mktemp -d) && cd "$dir" || exit
"$@" </dev/null 2>&1 &
exec >/dev/null 2>&1
read -r forever
kill -KILL $!
wait
cd / && rm -rf "$dir"`

// startServer starts the redis-server or valkey-server that the PATH has.
func startServer(ctx context.Context) (*server, error) {
	name, err := exec.LookPath("redis-server")
	if err != nil {
		name, err = exec.LookPath("valkey-server")
	}
	if err != nil {
		return nil, errors.New("no redis-server on the PATH; install one, or give the address of an empty Redis by -redis")
	}
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(addr)
	s := &server{addr: addr}
	s.guard = exec.CommandContext(ctx, "sh", "-c", guard, "sh", name, "--bind", host, "--port", port, "--save", "", "--appendonly", "no")
	return s, s.start()
}

// freeAddr is an address on loopback that nobody listens on.
func freeAddr(ctx context.Context) (string, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// start returns when the server answers.
func (s *server) start() error {
	in, err := s.guard.StdinPipe()
	if err != nil {
		return err
	}
	out, err := s.guard.StdoutPipe()
	if err != nil {
		return err
	}
	s.hold, s.guard.Cancel = in, in.Close // a guard that is killed would leave its server
	if err := s.guard.Start(); err != nil {
		return err
	}
	said := ""
	for log := bufio.NewScanner(out); log.Scan(); {
		if strings.Contains(log.Text(), "Ready to accept connections") {
			go io.Copy(io.Discard, out) //nolint:errcheck // the end of the log is the end of the server
			return nil
		}
		said = log.Text()
	}
	s.stop()
	return fmt.Errorf("the server ended before it was ready; the last that it said is %q", said)
}

// stop ends the server.
func (s *server) stop() {
	_ = s.hold.Close()
	_ = s.guard.Wait()
}
