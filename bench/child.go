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

// childRole names the environment variable that makes this program a child of the bench. What a
// child spends is not counted as the client's CPU.
const childRole = "SLIDEGATE_BENCH_CHILD"

// actAsChild never returns if this process is a child. A child ends with its parent, at the latest.
func actAsChild() {
	role := strings.Fields(os.Getenv(childRole))
	if len(role) == 0 {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it, or dies
		os.Exit(0)
	}()
	if err := act(role); err != nil {
		fmt.Println(err)
	}
	os.Exit(1)
}

func act(role []string) error {
	if role[0] == "busy" {
		fmt.Println("busy")
		for {
		}
	}
	extra, err := time.ParseDuration(role[1])
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return delayAll(listener, role[2], extra)
}

// startChild starts a child and returns the first line that it prints.
func startChild(role ...string) (line string, stop func(), err error) {
	path, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(path) //nolint:noctx // stop ends it
	cmd.Env, cmd.Stderr = append(os.Environ(), childRole+"="+strings.Join(role, " ")), os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	}
	line, err = bufio.NewReader(stdout).ReadString('\n')
	return strings.TrimSpace(line), stop, err
}

// startBusy starts n processes that use all the CPU they get.
func startBusy(n int) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	for range n {
		_, stopOne, err := startChild("busy")
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, stopOne)
	}
	return stop, nil
}
