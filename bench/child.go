package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// childRole is the environment variable that makes this program a child process of a bench. CPU
// used by a child is not counted as the client's.
const childRole = "SLIDEGATE_BENCH_CHILD"

// roles maps the first word of a role to what the child does. The other words are its arguments.
var roles = map[string]func(args []string) error{"busy": busy, "delay": delay, "ping": pingForever, "wait": waitForever}

// actAsChild returns only if this process is not a child. A child exits when its parent stops it or
// dies.
func actAsChild() {
	role := strings.Fields(os.Getenv(childRole))
	if len(role) == 0 {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the parent holds the other end
		os.Exit(0)
	}()
	if err := roles[role[0]](role[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// busy uses as much CPU as it can get.
func busy([]string) error {
	fmt.Println("busy")
	for n := 0; ; n++ {
	}
}

// delay forwards connections to an address, and adds a delay to each round trip. args contain the
// address and the delay. It prints its own address.
func delay(args []string) error {
	extra, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a child has no context
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return delayAll(listener, args[0], extra)
}

// child is a process that this one started.
type child struct {
	cmd *exec.Cmd
	in  io.Closer // closing it makes the child exit
	out *bufio.Reader
}

// startChild starts this program as a child.
func startChild(role ...string) (*child, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path) //nolint:noctx // stop ends it
	cmd.Env, cmd.Stderr = append(os.Environ(), childRole+"="+strings.Join(role, " ")), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &child{cmd, in, bufio.NewReader(out)}, cmd.Start()
}

// line returns the next line that the child prints.
func (c *child) line() (string, error) {
	text, err := c.out.ReadString('\n')
	return strings.TrimSpace(text), err
}

// stop makes the child exit, and returns once it has exited.
func (c *child) stop() {
	_ = c.in.Close()
	_ = c.cmd.Wait()
}
