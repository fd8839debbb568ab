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

	"github.com/slidegate/slidegate/internal/test/redistest/containers"
)

// docker runs servers in containers.
type docker struct {
	containers.Daemon
	helper  *helper
	network string // the network of a cluster's nodes
}

// errNoDocker means that SLIDEGATE_DOCKER is 0.
var errNoDocker = errors.New("SLIDEGATE_DOCKER=0 forbids it")

// findDocker returns Docker as a host, or an error if Docker does not answer within limit.
func findDocker(limit time.Duration) (host, error) {
	if os.Getenv("SLIDEGATE_DOCKER") == "0" {
		return nil, errNoDocker
	}
	h, err := startHelper()
	if err != nil {
		return nil, err
	}
	d := docker{helper: h}
	if err := h.Call("Docker.Find", limit, &d.Daemon); err != nil {
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
	return &container{docker: d, port: port, launch: l}
}

// cluster creates a network for the nodes. Tests reach the nodes by ports of the Docker host and
// another network, so they can still reach a node that is taken off this network.
func (d docker) cluster() (host, error) {
	return d, d.helper.Call("Docker.Network", struct{}{}, &d.network)
}

// container is a server in a container. Each start creates a new container, on the same port of the
// Docker host.
type container struct {
	docker docker
	port   int
	launch launch

	ip atomic.Value // string: the server's address on the cluster's network; each start or rejoin can change it
}

func (c *container) addr() string { return net.JoinHostPort(c.docker.Address, strconv.Itoa(c.port)) }

func (c *container) peer() string {
	ip, _ := c.ip.Load().(string)
	return net.JoinHostPort(ip, strconv.Itoa(containers.Port))
}

func (c *container) start() error {
	return c.moved("Docker.Start", containers.Container{
		Port: c.port, Network: c.docker.network, Files: c.launch.files, Ready: c.launch.ready,
		Command: c.launch.commandLine(append(c.launch.portFlags(containers.Port), "--protected-mode", "no")...),
	})
}

func (c *container) kill() error   { return c.ask("Docker.Kill") }
func (c *container) pause() error  { return c.ask("Docker.Pause") }
func (c *container) resume() error { return c.ask("Docker.Resume") }

func (c *container) isolate() error {
	if c.docker.network == "" {
		return errNoCluster
	}
	return c.ask("Docker.Isolate")
}

func (c *container) rejoin() error {
	if c.docker.network == "" {
		return errNoCluster
	}
	return c.moved("Docker.Rejoin", c.port)
}

func (c *container) ask(method string) error {
	return c.docker.helper.Call(method, c.port, new(struct{}))
}

// moved calls a method that returns the server's new address, and stores that address.
func (c *container) moved(method string, args any) error {
	var ip string
	err := c.docker.helper.Call(method, args, &ip)
	c.ip.Store(ip)
	return err
}

// helper is the running program cluster_test/containers, which controls Docker. The program is in
// another module, so that this module does not require its dependencies.
type helper struct {
	*rpc.Client
	cmd *exec.Cmd
}

// startHelper builds and runs the program. Go caches the build. All test binaries of one go test
// command share a testcontainers reaper.
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

// end closes the helper's input, and waits until the helper has removed everything and exited.
func (h *helper) end() error {
	return errors.Join(h.Close(), h.cmd.Wait())
}

// startedIn is the directory in which the program started. It is recorded because tests may change
// the working directory.
var startedIn, _ = os.Getwd()

// clusterTest returns the directory of the module cluster_test, if the program started in a clone
// of the repository.
func clusterTest() (string, error) {
	for dir := startedIn; ; dir = filepath.Dir(dir) {
		module := filepath.Join(dir, "cluster_test")
		if _, err := os.Stat(filepath.Join(module, "containers", "main.go")); err == nil {
			return module, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in a clone of Slidegate, so cluster_test/containers, which asks Docker, is missing", startedIn)
		}
	}
}
