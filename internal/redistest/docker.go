package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/types/container"
	ports "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"
)

// Image is the server that tests run on in Docker, unless SLIDEGATE_REDIS_IMAGE names another.
const Image = "redis:8.6-alpine"

// docker runs servers in containers.
type docker struct {
	image   string
	version string // of the Docker daemon
	address string // where the ports of containers are
	network string // of the nodes of a cluster
}

// findDocker returns within limit what answers as Docker, or why nothing does.
func findDocker(limit time.Duration) (host, error) {
	type answer struct {
		docker
		err error
	}
	got := make(chan answer, 1)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	go func() {
		d, err := askDocker(ctx)
		got <- answer{d, err}
	}()
	select {
	case a := <-got:
		return a.docker, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer in %v", limit)
	}
}

// askDocker may hang: testcontainers asks without a deadline.
func askDocker(ctx context.Context) (d docker, err error) {
	log.SetDefault(log.NewNoopLogger())
	if err := pingDockerHost(ctx); err != nil {
		return d, err
	}
	p, err := testcontainers.NewDockerProvider()
	if err != nil {
		return d, err
	}
	defer p.Close()
	info, err := p.Client().Info(ctx, client.InfoOptions{})
	if err != nil {
		return d, err
	}
	address, err := p.DaemonHost(ctx)
	return docker{image: imageName(), version: info.Info.ServerVersion, address: address}, err
}

// pingDockerHost asks the daemon that DOCKER_HOST names: where that one does
// not answer, testcontainers would go on to others, which nobody asked for.
func pingDockerHost(ctx context.Context) error {
	if os.Getenv("DOCKER_HOST") == "" {
		return nil
	}
	c, err := client.New(client.FromEnv)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Ping(ctx, client.PingOptions{})
	return err
}

func imageName() string {
	if name := os.Getenv("SLIDEGATE_REDIS_IMAGE"); name != "" {
		return name
	}
	return Image
}

func (d docker) String() string {
	return fmt.Sprintf("image %s in Docker %s", d.image, d.version)
}

func (d docker) node(port int, l launch) node {
	return &box{docker: d, port: port, launch: l}
}

// cluster makes a network for the nodes. Ports of the Docker host lead to them through another, so a node that leaves it can still be reached.
func (d docker) cluster() (host, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	made, err := network.New(ctx, network.WithInternal())
	if err != nil {
		return nil, err
	}
	d.network = made.Name
	atEnd(func() {
		if err := made.Remove(context.Background()); err != nil {
			fmt.Fprintf(os.Stderr, "redistest: a network is left behind: %v\n", err)
		}
	})
	return d, nil
}

// box is a server in a container. Each start makes a new container, on the
// same port of the Docker host.
type box struct {
	docker docker
	port   int
	launch launch

	container *testcontainers.DockerContainer // nil: not running
	ip        atomic.Value                    // a string: its address on the network of a cluster, which each start and rejoin can change
}

func (b *box) addr() string { return net.JoinHostPort(b.docker.address, strconv.Itoa(b.port)) }

func (b *box) peer() string {
	ip, _ := b.ip.Load().(string)
	return net.JoinHostPort(ip, "6379")
}

func (b *box) start() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // it may have to pull the image
	defer cancel()
	b.container, err = testcontainers.Run(ctx, b.docker.image,
		testcontainers.WithCmd(b.launch.commandLine(append(b.launch.portFlags(6379), "--protected-mode", "no")...)...),
		testcontainers.WithFiles(b.files()...),
		testcontainers.WithExposedPorts("6379/tcp"),
		testcontainers.WithHostConfigModifier(b.publish),
		testcontainers.WithWaitStrategyAndDeadline(startLimit,
			wait.ForLog(b.launch.ready).WithPollInterval(20*time.Millisecond)))
	if err == nil && b.docker.network != "" {
		err = b.rejoin()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("image %s: %w", b.docker.image, err), b.kill())
	}
	return nil
}

// files are those of the server, in its directory.
func (b *box) files() (files []testcontainers.ContainerFile) {
	for name, text := range b.launch.files {
		files = append(files, testcontainers.ContainerFile{Reader: strings.NewReader(text), ContainerFilePath: "/data/" + name, FileMode: 0o644})
	}
	return files
}

// publish gives the server its port on the Docker host.
func (b *box) publish(c *container.HostConfig) {
	c.PortBindings = ports.PortMap{
		ports.MustParsePort("6379/tcp"): {{HostPort: strconv.Itoa(b.port)}},
	}
}

func (b *box) kill() error {
	if b.container == nil {
		return nil
	}
	err := testcontainers.TerminateContainer(b.container, testcontainers.StopTimeout(0))
	b.container = nil
	return err
}

func (b *box) pause() error {
	return b.ask(func(ctx context.Context, c *testcontainers.DockerClient, id string) error {
		_, err := c.ContainerPause(ctx, id, client.ContainerPauseOptions{})
		return err
	})
}

func (b *box) resume() error {
	return b.ask(func(ctx context.Context, c *testcontainers.DockerClient, id string) error {
		_, err := c.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
		return err
	})
}

func (b *box) isolate() error {
	if b.docker.network == "" {
		return errNoCluster
	}
	return b.ask(func(ctx context.Context, c *testcontainers.DockerClient, id string) error {
		_, err := c.NetworkDisconnect(ctx, b.docker.network, client.NetworkDisconnectOptions{Container: id})
		return err
	})
}

func (b *box) rejoin() error {
	if b.docker.network == "" {
		return errNoCluster
	}
	return b.ask(func(ctx context.Context, c *testcontainers.DockerClient, id string) error {
		if _, err := c.NetworkConnect(ctx, b.docker.network, client.NetworkConnectOptions{Container: id}); err != nil {
			return err
		}
		now, err := b.container.Inspect(ctx)
		if err == nil {
			b.ip.Store(now.NetworkSettings.Networks[b.docker.network].IPAddress.String())
		}
		return err
	})
}

// ask has Docker do something that testcontainers has no call for.
func (b *box) ask(what func(context.Context, *testcontainers.DockerClient, string) error) error {
	if b.container == nil {
		return errors.New("the server does not run")
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	c, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return what(ctx, c, b.container.GetContainerID())
}
