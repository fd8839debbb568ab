package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestNoPassword checks that an address with a password is rejected and not printed.
func TestNoPassword(t *testing.T) {
	env := environment{addr: "user:secret@127.0.0.1:1"}
	if _, _, err := env.open(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// TestDelay checks that PING takes longer by at least what the network should add.
func TestDelay(t *testing.T) {
	const extra = 2 * time.Millisecond
	env := environment{addr: redistest.Addr(t), delay: extra}
	t.Cleanup(env.close)
	via, network, err := env.startDelay()
	if err != nil {
		t.Fatal(err)
	}
	direct, err := ping(env.addr)
	if err != nil {
		t.Fatal(err)
	}
	delayed, err := ping(via)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s; later %v, and %v through the delay of %v", network, direct, delayed, extra)
	if delayed < extra {
		t.Errorf("PING takes %v through a delay of %v", delayed, extra)
	}
}

// TestDelayIsNoBottleneck checks that replies arrive in order, and that many can be in transit at
// the same time.
func TestDelayIsNoBottleneck(t *testing.T) {
	const requests, extra = 4000, 20 * time.Millisecond
	env := environment{addr: redistest.Addr(t), delay: extra}
	t.Cleanup(env.close)
	via, _, err := env.startDelay()
	if err != nil {
		t.Fatal(err)
	}
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", via)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute)) // if requests waited for each other, they would take longer
	go func() {
		for i := range requests {
			if _, err := fmt.Fprintf(conn, "ECHO %d\r\n", i); err != nil {
				return // the reader sees the error too
			}
		}
	}()
	replies := bufio.NewReader(conn)
	for i := range requests {
		var length, n int
		if _, err := fmt.Fscanf(replies, "$%d\r\n%d\r\n", &length, &n); err != nil || n != i {
			t.Fatalf("reply %d is %d, error %v", i, n, err)
		}
	}
}

// TestBusy checks that a busy loop runs in another process, uses CPU, and ends when it is stopped.
func TestBusy(t *testing.T) {
	for hold := 400 * time.Millisecond; ; hold *= 2 { // on a busy machine, it gets little CPU
		c, err := startChild("busy")
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.line()
		<-time.After(hold)
		c.stop()
		if err != nil || !c.cmd.ProcessState.Exited() {
			t.Fatal(err, c.cmd.ProcessState)
		}
		if used := c.cmd.ProcessState.UserTime(); used > 200*time.Millisecond {
			return
		} else if hold > time.Minute {
			t.Fatalf("it used %v of CPU in %v", used, hold)
		}
	}
}

// TestEarlier checks that earlier.sh measures an earlier revision in the same passes and leaves
// nothing behind. It uses the last revision, and the last revision that had a different
// constructor. That one has neither pace nor inflight.
func TestEarlier(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it builds the library twice")
	}
	old := []string{"window, hot", "window, go-redis, hot", "window", "window, in memory", "ar1", "login"}
	all := slices.Concat(old, []string{"pace", "inflight", "inflight, full"})
	for revision, names := range map[string][]string{"HEAD": all, removed("func NewOn(") + "^": old} {
		if err := exec.Command("git", "rev-parse", "--verify", revision).Run(); err != nil {
			t.Skip("the sources are in no repository, or in one without history: ", err)
		}
		files := must(os.ReadDir("."))
		cmd := exec.Command("./earlier.sh", revision, "-redis", redistest.Start(t).Addr(), "-passes", "1", "-rounds", "1", "-span", "1s", "-memory", "0", "-callers", "4",
			"-rows", "^(window|ar1|pace|login|inflight)", "hot", "throughput", "inflight")
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("error %v, printed %s", err, text)
		}
		for _, name := range names {
			earlier, hot := strings.CutSuffix(name, ", hot")
			earlier += before
			if hot {
				earlier += ", hot"
			}
			if !strings.Contains(string(text), "| "+name+" / "+earlier+" |") {
				t.Errorf("no ratio of %s to %s at %s in %s", name, earlier, revision, text)
			}
		}
		if after := must(os.ReadDir(".")); len(after) != len(files) {
			t.Errorf("files %v, and %v before", after, files)
		}
	}
}

// removed returns the commit that removed the given text from package window, or "" if git does not
// know it.
func removed(text string) string {
	commit, _ := exec.Command("git", "log", "-1", "--format=%H", "-S"+text, "--", "../window").Output()
	return strings.TrimSpace(string(commit))
}

// TestConditions checks that a run states its conditions.
func TestConditions(t *testing.T) {
	env := environment{addr: redistest.Addr(t), busy: 1, delay: time.Millisecond}
	t.Cleanup(env.close)
	_, c, err := env.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]string{"command": c.Command, "server": c.Server, "Go": c.Go, "system": c.System, "load": c.Load, "network": c.Network} {
		if of == "" {
			t.Errorf("no %s in %+v", name, c)
		}
	}
	if c.Busy != 1 || c.Cores < 1 {
		t.Errorf("%+v", c)
	}
}

func init() { roles["ask"] = askUntilDenied }

// The limit of TestTenProcesses, and the number of callers.
const (
	shared    = "20000/1h"
	processes = 10
	askers    = 256 // the number of callers in each process
)

// TestTenProcesses uses a single event from ten processes, with 256 callers each, until it is
// denied. It checks that exactly as many attempts are allowed as the limit permits.
func TestTenProcesses(t *testing.T) {
	client := redistest.Client(t)
	name := redistest.Key(t)
	var all []*child
	for range processes {
		c, err := startChild("ask", redistest.Addr(t), name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.stop)
		if line, err := c.line(); line != "ready" {
			t.Fatalf("line %q, error %v", line, err)
		}
		all = append(all, c)
	}
	for range processes {
		must(client.Do(t.Context(), client.B().Lpush().Key(name).Element("go").Build()).ToInt64())
	}
	sum := 0
	for _, c := range all {
		line, err := c.line()
		if err != nil {
			t.Fatal("a process ended without a result: ", err)
		}
		allowed := must(strconv.Atoi(line))
		t.Logf("allowed: %d", allowed)
		sum += allowed
	}
	if fmt.Sprintf("%d/1h", sum) != shared {
		t.Errorf("%d allowed under %s", sum, shared)
	}
}

// askUntilDenied runs in each of the processes. It waits until a value appears in Redis, then makes
// attempts, and prints how many were allowed.
func askUntilDenied(args []string) error {
	ctx := context.Background()
	client, err := connect(args[0])
	if err != nil {
		return err
	}
	defer client.Close()
	l, err := window.New(window.On(client), window.Config{Name: "shared", Limits: parse([]string{shared}), Timeout: time.Minute})
	if err != nil {
		return err
	}
	ask := asking(l)
	fmt.Println("ready")
	if err := client.Do(ctx, client.B().Blpop().Key(args[1]).Timeout(30).Build()).Error(); err != nil {
		return err
	}
	var allowed atomic.Int64
	errs := make([]error, askers)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() {
			for more := true; more && errs[i] == nil; {
				if more, errs[i] = ask(ctx, args[1]); more {
					allowed.Add(1)
				}
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Println(allowed.Load())
	return nil
}
