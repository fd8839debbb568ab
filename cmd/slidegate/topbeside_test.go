package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// beside is the number of rounds that TestTopBeside measures.
var beside = flag.Int("beside", 0, "how often to measure decisions beside slidegate top, and without it")

// TestTopBeside measures how slidegate top affects decisions on a cluster with a million events.
// Rounds with and without top alternate, because other programs use the machine too. To run it: go
// test ./cmd/slidegate -run TopBeside -beside 10 -v -timeout 20m.
func TestTopBeside(t *testing.T) {
	if *beside == 0 {
		t.Skip("This takes minutes, and the result depends on the machine; run it with -beside 10.")
	}
	l, err := window.New(window.On(redistest.Cluster(t)), window.Config{Name: "login", Limits: parsed(t, "5/1h,20/1d"), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 1_000_000)
	var ratios []float64
	for range *beside {
		program := exec.CommandContext(t.Context(), os.Args[0], "top", "--redis", clusterAddresses(t), "login")
		program.Env = append(os.Environ(), asProgram+"=1")
		ended, output := make(chan struct{}), []byte(nil)
		go func() {
			defer close(ended)
			output, _ = program.CombinedOutput()
		}()
		began := time.Now()
		with := percentile99(t, l, ended)
		took := time.Since(began)
		late := make(chan struct{})
		time.AfterFunc(took, func() { close(late) })
		without := percentile99(t, l, late)
		ratios = append(ratios, float64(with)/float64(without))
		t.Logf("%.1fs beside top: p99 %v, then without it %v; %s", took.Seconds(), with.Round(10*time.Microsecond), without.Round(10*time.Microsecond), keysLine(string(output)))
	}
	began := time.Now()
	report, _, _ := command(t.Context(), "top", "--redis", clusterAddresses(t), "--max-time", "10m", "login")
	t.Logf("all keys, without decisions: %.1fs; %s", time.Since(began).Seconds(), keysLine(report))
	slices.Sort(ratios)
	t.Logf("p99 beside top over p99 without it: median %.2f, of %.2f", ratios[len(ratios)/2], ratios)
}

// keysLine returns the line of a report that says how many keys were seen.
func keysLine(report string) string {
	for line := range strings.Lines(report) {
		if strings.HasPrefix(line, "keys ") {
			return strings.TrimSpace(line)
		}
	}
	return report
}

// fill counts a unit for each of n events.
func fill(t *testing.T, l *window.Limiter, n int) {
	t.Helper()
	for first := 0; first < n; first += 4000 {
		redistest.AtOnce(4000, func(i int) {
			event := fmt.Sprintf("10.%d.%d.%d", (first+i)/65536, (first+i)/256%256, (first+i)%256)
			if _, err := l.Allow(t.Context(), event); err != nil {
				t.Error(err)
			}
		})
	}
}

// percentile99 returns the 99th percentile of how long a decision takes, measured until end is
// closed. 16 callers each decide every 5 ms. The first second, in which a program starts, is not
// counted.
func percentile99(t *testing.T, l *window.Limiter, end <-chan struct{}) time.Duration {
	t.Helper()
	var mu sync.Mutex
	var all []time.Duration
	var callers sync.WaitGroup
	start := time.Now().Add(time.Second)
	for caller := range 16 {
		callers.Go(func() {
			var took []time.Duration
			n := 0
			for tick := time.Tick(5 * time.Millisecond); ; n++ {
				select {
				case <-end:
					mu.Lock()
					all = append(all, took...)
					mu.Unlock()
					return
				case <-tick:
				}
				began := time.Now()
				if _, err := l.Allow(context.WithoutCancel(t.Context()), fmt.Sprintf("10.%d.%d.%d", caller, n/256%256, n%256)); err != nil {
					t.Error(err)
				}
				if began.After(start) {
					took = append(took, time.Since(began))
				}
			}
		})
	}
	callers.Wait()
	slices.Sort(all)
	return all[len(all)*99/100]
}
