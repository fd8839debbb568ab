package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	ports "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/slidegate/slidegate/internal/test/redistest/containers"
)

const (
	pullLimit = 10 * time.Minute // for servers whose image may have to be pulled
	askLimit  = 30 * time.Second // for all other operations
)

// docker holds the containers and networks that the program has created. The program serves its
// exported methods over RPC.
type docker struct {
	image string

	mu       sync.Mutex
	boxes    map[int]box // by port on the Docker host
	networks []*testcontainers.DockerNetwork
}

// box represents a container and its network. An isolated container is disconnected from the
// network.
type box struct {
	container *testcontainers.DockerContainer
	network   string
}

// Network creates a network for a cluster and returns its name.
func (d *docker) Network(_ struct{}, name *string) error {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	made, err := network.New(ctx, network.WithInternal())
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.networks = append(d.networks, made)
	*name = made.Name
	return nil
}

// Start starts a server in a new container. If the container has a network, Start returns its IP
// address in that network.
func (d *docker) Start(b containers.Container, ip *string) error {
	ctx, cancel := context.WithTimeout(context.Background(), pullLimit)
	defer cancel()
	c, err := testcontainers.Run(ctx, d.image,
		testcontainers.WithCmd(b.Command...),
		testcontainers.WithFiles(files(b)...),
		testcontainers.WithExposedPorts(fmt.Sprint(containers.Port, "/tcp")),
		testcontainers.WithHostConfigModifier(publish(b.Port)),
		testcontainers.WithWaitStrategyAndDeadline(askLimit,
			wait.ForLog(b.Ready).WithPollInterval(20*time.Millisecond)))
	if c != nil {
		d.keep(b.Port, box{c, b.Network})
	}
	if err == nil && b.Network != "" {
		err = d.Rejoin(b.Port, ip)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("image %s: %w", d.image, err), d.Kill(b.Port, nil))
	}
	return nil
}

// files returns the files to place in the server's directory.
func files(b containers.Container) (all []testcontainers.ContainerFile) {
	for name, text := range b.Files {
		all = append(all, testcontainers.ContainerFile{Reader: strings.NewReader(text), ContainerFilePath: "/data/" + name, FileMode: 0o644})
	}
	return all
}

// publish returns a modifier that publishes a server on the given port of the Docker host.
func publish(port int) func(*container.HostConfig) {
	return func(c *container.HostConfig) {
		c.PortBindings = ports.PortMap{
			ports.MustParsePort(fmt.Sprint(containers.Port, "/tcp")): {{HostPort: strconv.Itoa(port)}},
		}
	}
}

func (d *docker) keep(port int, b box) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boxes[port] = b
}

// Kill removes the server on the given port, if there is one.
func (d *docker) Kill(port int, _ *struct{}) error {
	d.mu.Lock()
	b, found := d.boxes[port]
	delete(d.boxes, port)
	d.mu.Unlock()
	if !found {
		return nil
	}
	return testcontainers.TerminateContainer(b.container, testcontainers.StopTimeout(0))
}

// removeAll removes all remaining containers and networks.
func (d *docker) removeAll() (err error) {
	for port := range d.boxes {
		err = errors.Join(err, d.Kill(port, nil))
	}
	for _, n := range d.networks {
		err = errors.Join(err, n.Remove(context.Background()))
	}
	return err
}

// Pause freezes a server. On a busy machine, the container runtime may fail to do so, so Pause
// retries a few times.
func (d *docker) Pause(port int, _ *struct{}) error {
	return d.ask(port, func(ctx context.Context, c *testcontainers.DockerClient, b box) (err error) {
		for range 5 {
			_, err = c.ContainerPause(ctx, b.container.GetContainerID(), client.ContainerPauseOptions{})
			if err == nil || !strings.Contains(err.Error(), "unable to freeze") {
				return err
			}
		}
		return err
	})
}

// Resume continues a server that Pause froze.
func (d *docker) Resume(port int, _ *struct{}) error {
	return d.ask(port, func(ctx context.Context, c *testcontainers.DockerClient, b box) error {
		_, err := c.ContainerUnpause(ctx, b.container.GetContainerID(), client.ContainerUnpauseOptions{})
		return err
	})
}

// Isolate disconnects a server from its network.
func (d *docker) Isolate(port int, _ *struct{}) error {
	return d.ask(port, func(ctx context.Context, c *testcontainers.DockerClient, b box) error {
		_, err := c.NetworkDisconnect(ctx, b.network, client.NetworkDisconnectOptions{Container: b.container.GetContainerID()})
		return err
	})
}

// Rejoin reconnects a server to its network, and returns its IP address in it.
func (d *docker) Rejoin(port int, ip *string) error {
	return d.ask(port, func(ctx context.Context, c *testcontainers.DockerClient, b box) error {
		_, err := c.NetworkConnect(ctx, b.network, client.NetworkConnectOptions{Container: b.container.GetContainerID()})
		if err != nil {
			return err
		}
		now, err := b.container.Inspect(ctx)
		if err == nil {
			*ip = now.NetworkSettings.Networks[b.network].IPAddress.String()
		}
		return err
	})
}

// ask calls the Docker API on a server's container, for operations that testcontainers does not
// offer.
func (d *docker) ask(port int, do func(context.Context, *testcontainers.DockerClient, box) error) error {
	d.mu.Lock()
	b, found := d.boxes[port]
	d.mu.Unlock()
	if !found {
		return errors.New("the server is not running")
	}
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	c, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return do(ctx, c, b)
}
