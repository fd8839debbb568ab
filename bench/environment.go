package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// environment describes the conditions under which to run.
type environment struct {
	addr  string        // the address of Redis; if empty, the run starts a server
	busy  int           // the number of other processes that use as much CPU as they can get
	delay time.Duration // what the network adds to a round trip
	ping  bool          // whether a neighbour's PINGs are measured

	stops []func()
}

// open starts what the run needs, connects to it, and describes the conditions of the run.
func (env *environment) open(ctx context.Context) (s servers, c conditions, err error) {
	c = conditions{Load: loads(), Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Busy: env.busy, Network: "no delay"}
	c.Command = strings.Join(append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...), " ")
	if err := env.startRedis(); err != nil {
		return s, c, err
	}
	via := ""
	if env.delay > 0 {
		if via, c.Network, err = env.startDelay(); err != nil {
			return s, c, fmt.Errorf("cannot delay the network: %w", err)
		}
	}
	if s, err = dial(ctx, env.addr, via); err != nil {
		return s, c, fmt.Errorf("cannot reach the Redis at %s: %w", env.addr, err)
	}
	env.stops, c.Server = append(env.stops, s.close), s.describe(ctx)
	return s, c, env.startBusy()
}

// close stops everything that open started.
func (env *environment) close() {
	for i := len(env.stops) - 1; i >= 0; i-- {
		env.stops[i]()
	}
}

// startRedis starts a Redis server if no address is given.
func (env *environment) startRedis() error {
	if strings.Contains(env.addr, "@") {
		return errors.New("-redis does not accept a user or a password; write host:port, as in 127.0.0.1:6379")
	}
	if env.addr != "" {
		return nil
	}
	addr, stop, err := redistest.Serve()
	if err == nil {
		env.addr, env.stops = addr, append(env.stops, stop)
	}
	return err
}

// startDelay starts a proxy that delays the network. It returns the proxy's address, and how long a
// PING takes through it.
func (env *environment) startDelay() (via, network string, err error) {
	c, err := startChild("delay", env.addr, env.delay.String())
	if err != nil {
		return "", "", err
	}
	env.stops = append(env.stops, c.stop)
	if via, err = c.line(); err != nil {
		return "", "", err
	}
	direct, err := ping(env.addr)
	if err != nil {
		return "", "", err
	}
	delayed, err := ping(via)
	return via, fmt.Sprintf("PING takes %v, and %v through the delay", direct.Round(time.Microsecond), delayed.Round(time.Microsecond)), err
}

// startPing starts the neighbour, if one is wanted.
func (env *environment) startPing() (*neighbour, error) {
	if !env.ping {
		return nil, nil
	}
	n, err := neighbourOn(env.addr)
	if err != nil {
		return nil, err
	}
	env.stops = append(env.stops, n.child.stop)
	metrics, compared = append(metrics, pingMetrics...), append(compared, pingMetrics...)
	return n, nil
}

// startBusy starts the processes that use as much CPU as they can get.
func (env *environment) startBusy() error {
	for range env.busy {
		c, err := startChild("busy")
		if err != nil {
			return err
		}
		env.stops = append(env.stops, c.stop)
		if _, err := c.line(); err != nil {
			return err
		}
	}
	return nil
}

// loads returns the load averages of 1, 5 and 15 minutes, if the system has them.
func loads() string {
	text, err := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 2 {
		return strings.Join(fields[:3], " ")
	}
	return "unknown"
}
