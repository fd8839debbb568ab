package redistest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/internal/redistest/boxes"
)

// docker runs servers in containers.
type docker struct {
	boxes.Found
	helper  *helper
	network string // of the nodes of a cluster
}

// findDocker returns what answers as Docker within limit, or why nothing does.
func findDocker(limit time.Duration) (host, error) {
	h, err := startHelper()
	if err != nil {
		return nil, err
	}
	d := docker{helper: h}
	if err := h.Call("Docker.Find", limit, &d.Found); err != nil {
		return nil, errors.Join(err, h.end())
	}
	atEnd(func() {
		if err := h.end(); err != nil {
			fmt.Fprintf(os.Stderr, "redistest: containers may be left behind: %v\n", err)
		}
	})
	return d, nil
}

func (d docker) String() string {
	return fmt.Sprintf("image %s in Docker %s", d.Image, d.Version)
}

func (d docker) node(port int, l launch) node {
	return &box{docker: d, port: port, launch: l}
}

// cluster makes a network for the nodes. Ports of the Docker host lead to them through another, so a node that leaves it can still be reached.
func (d docker) cluster() (host, error) {
	return d, d.helper.Call("Docker.Network", struct{}{}, &d.network)
}

// box is a server in a container. Each start makes a new container, on the
// same port of the Docker host.
type box struct {
	docker docker
	port   int
	launch launch

	ip atomic.Value // a string: its address on the network of a cluster, which each start and rejoin can change
}

func (b *box) addr() string { return net.JoinHostPort(b.docker.Address, strconv.Itoa(b.port)) }

func (b *box) peer() string {
	ip, _ := b.ip.Load().(string)
	return net.JoinHostPort(ip, strconv.Itoa(boxes.Port))
}

func (b *box) start() error {
	return b.moved("Docker.Start", boxes.Box{
		Port: b.port, Network: b.docker.network, Files: b.launch.files, Ready: b.launch.ready,
		Command: b.launch.commandLine(append(b.launch.portFlags(boxes.Port), "--protected-mode", "no")...),
	})
}

func (b *box) kill() error   { return b.ask("Docker.Kill") }
func (b *box) pause() error  { return b.ask("Docker.Pause") }
func (b *box) resume() error { return b.ask("Docker.Resume") }

func (b *box) isolate() error {
	if b.docker.network == "" {
		return errNoCluster
	}
	return b.ask("Docker.Isolate")
}

func (b *box) rejoin() error {
	if b.docker.network == "" {
		return errNoCluster
	}
	return b.moved("Docker.Rejoin", b.port)
}

func (b *box) ask(method string) error {
	return b.docker.helper.Call(method, b.port, new(struct{}))
}

// moved calls a method that returns the server's new address.
func (b *box) moved(method string, args any) error {
	var ip string
	err := b.docker.helper.Call(method, args, &ip)
	b.ip.Store(ip)
	return err
}

// helper is the program cluster_test/containers, which knows Docker. It is not part of this module, which would then require all that it needs.
type helper struct {
	*rpc.Client
	cmd *exec.Cmd
}

// startHelper builds and runs the program. Go caches what it builds. Test binaries that `go test` runs share one reaper of testcontainers.
func startHelper() (*helper, error) {
	dir, err := clusterTest()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "run", "./containers")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	if os.Getenv("TESTCONTAINERS_SESSION_ID") == "" {
		cmd.Env = append(os.Environ(), "TESTCONTAINERS_SESSION_ID=slidegate-"+strconv.Itoa(os.Getppid()))
	}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &helper{jsonrpc.NewClient(pipes{out, in}), cmd}, nil
}

// pipes are the output and the input of the helper.
type pipes struct {
	io.Reader
	io.WriteCloser
}

// end ends the helper's input, and returns when it has removed everything.
func (h *helper) end() error {
	return errors.Join(h.Close(), h.cmd.Wait())
}

// startedIn is the directory in which the program started: tests may change theirs.
var startedIn, _ = os.Getwd()

// clusterTest returns the directory of the module cluster_test, if the program started somewhere in a clone of the repository.
func clusterTest() (string, error) {
	for dir := startedIn; ; dir = filepath.Dir(dir) {
		module := filepath.Join(dir, "cluster_test")
		if _, err := os.Stat(filepath.Join(module, "containers", "main.go")); err == nil {
			return module, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is in no clone of Slidegate, and so without cluster_test/containers, which asks Docker", startedIn)
		}
	}
}
