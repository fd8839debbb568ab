// Command containers runs the servers of internal/test/redistest in Docker. The package
// internal/test/redistest/containers describes its input and output. It is a separate program so that
// the libraries do not depend on testcontainers.
package main

import (
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/signal"
	"syscall"

	"github.com/testcontainers/testcontainers-go/log"
)

// main serves requests until its input ends. The input also ends when the test binary dies, so main
// ignores signals that would terminate it earlier.
func main() {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	log.SetDefault(log.NewNoopLogger())
	d := &docker{boxes: map[int]box{}}
	err := rpc.RegisterName("Docker", d)
	if err == nil {
		rpc.ServeCodec(jsonrpc.NewServerCodec(pipes{os.Stdin, os.Stdout}))
		err = d.removeAll()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "containers:", err)
		os.Exit(1)
	}
}

// pipes combines standard input and standard output.
type pipes struct {
	io.Reader
	io.WriteCloser
}
