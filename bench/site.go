package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/redistest"
)

// site is where a run takes place.
type site struct {
	addr  string // of Redis; empty: one of its own
	busy  int
	delay time.Duration
}

// prepare starts what the run needs, connects, and describes the conditions. Stop ends all of it,
// after an error too.
func (at site) prepare(ctx context.Context, s *servers, c *conditions) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, stop := range slices.Backward(stops) {
			stop()
		}
	}
	c.Load, c.Cores, c.Go, c.Busy = loads(), runtime.NumCPU(), runtime.Version(), at.busy
	c.Command = strings.Join(append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...), " ")
	if at.addr == "" {
		addr, stopServer, err := redistest.Serve()
		if err != nil {
			return stop, err
		}
		at.addr, stops = addr, append(stops, stopServer)
	}
	via := ""
	c.Network = "no delay"
	if at.delay > 0 {
		addr, stopDelay, err := startChild("delay", at.delay.String(), at.addr)
		if err != nil {
			return stop, err
		}
		via, stops = addr, append(stops, stopDelay)
		if c.Network, err = compareDelay(at.addr, via); err != nil {
			return stop, err
		}
	}
	if *s, err = dial(ctx, at.addr, via); err != nil {
		return stop, fmt.Errorf("cannot reach the Redis at %s: %w", at.addr, err)
	}
	stops = append(stops, s.close)
	c.Server = s.describe(ctx)
	stopBusy, err := startBusy(at.busy)
	if err == nil {
		stops = append(stops, stopBusy)
	}
	return stop, err
}

// compareDelay says how long PING takes with and without the delay.
func compareDelay(direct, delayed string) (string, error) {
	fast, err := ping(direct)
	if err != nil {
		return "", err
	}
	slow, err := ping(delayed)
	return fmt.Sprintf("PING takes %v, and %v through the delay", fast.Round(time.Microsecond), slow.Round(time.Microsecond)), err
}

// loads returns the load averages, where the system has them.
func loads() string {
	text, err := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 2 {
		return strings.Join(fields[:3], " ")
	}
	return "unknown"
}
