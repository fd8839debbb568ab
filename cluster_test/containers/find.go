package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/slidegate/slidegate/internal/test/redistest/containers"
)

// image is the default server image. SLIDEGATE_REDIS_IMAGE overrides it.
const image = "redis:8.6-alpine"

// Find returns the Docker daemon that responds. If none responds within the limit, it returns an
// error: some daemons accept a connection but never respond.
func (d *docker) Find(limit time.Duration, found *containers.Daemon) error {
	type answer struct {
		containers.Daemon
		err error
	}
	got := make(chan answer, 1)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	go func() {
		f, err := find(ctx)
		got <- answer{f, err}
	}()
	select {
	case a := <-got:
		d.image, *found = a.Image, a.Daemon
		return a.err
	case <-ctx.Done():
		return fmt.Errorf("no answer within %v", limit)
	}
}

// find returns the Docker daemon that responds. It can hang, because testcontainers sets no
// deadline.
func find(ctx context.Context) (f containers.Daemon, err error) {
	if err := pingDockerHost(ctx); err != nil {
		return f, err
	}
	p, err := testcontainers.NewDockerProvider()
	if err != nil {
		return f, err
	}
	defer func() { _ = p.Close() }()
	info, err := p.Client().Info(ctx, client.InfoOptions{})
	if err != nil {
		return f, err
	}
	address, err := p.DaemonHost(ctx)
	return containers.Daemon{Image: imageName(), Version: info.Info.ServerVersion, Address: address}, err
}

// pingDockerHost returns an error if DOCKER_HOST is set but its daemon does not respond.
// testcontainers would try other daemons instead.
func pingDockerHost(ctx context.Context) error {
	if os.Getenv("DOCKER_HOST") == "" {
		return nil
	}
	c, err := client.New(client.FromEnv)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_, err = c.Ping(ctx, client.PingOptions{})
	return err
}

func imageName() string {
	if name := os.Getenv("SLIDEGATE_REDIS_IMAGE"); name != "" {
		return name
	}
	return image
}
