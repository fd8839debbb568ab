package window_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestHotEventsMerge checks that 64 callers on one event need at most one script call for eight
// decisions.
func TestHotEventsMerge(t *testing.T) {
	for name, cfg := range map[string]window.Config{
		"allowed":       {Limits: parsed("1000000/1h")},
		"denied":        {Limits: parsed("1/1h")},
		"denials count": {Limits: parsed("1/1h"), CountDenied: true},
	} {
		t.Run(name, func(t *testing.T) {
			var sent redistest.Calls
			cfg.Name, cfg.Timeout = redistest.Key(t), time.Minute
			l := must(window.New(window.On(redistest.NewClient(t, sent.Count)), cfg))
			must(l.Allow(t.Context(), "e"))
			before, decisions := sent.Scripts.Load(), atomic.Int64{}
			var callers sync.WaitGroup
			for range 64 {
				callers.Go(func() {
					for range 300 {
						must(l.Allow(context.Background(), "e"))
						decisions.Add(1)
					}
				})
			}
			callers.Wait()
			calls := sent.Scripts.Load() - before
			t.Logf("%d decisions by %d script calls: %.1f each", decisions.Load(), calls, float64(decisions.Load())/float64(calls))
			if 8*calls > decisions.Load() {
				t.Errorf("%d script calls for %d decisions", calls, decisions.Load())
			}
		})
	}
}

// TestHotEventInTenProcesses lets 260 callers in ten processes ask about one event until an hour's
// units are used up. Exactly these units must be allowed. No interval of the other limit may hold
// more than its Max.
func TestHotEventInTenProcesses(t *testing.T) {
	const most = 20_000
	cfg := window.Config{Name: "hot", Limits: []window.Limit{limit("4000/20ms"), window.PerHour(most)}, Timeout: 10 * time.Second}
	if address := os.Getenv("SLIDEGATE_TEST_HOT"); address != "" {
		client := must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}}))
		useUp(t, must(window.New(window.On(client), cfg)))
		return
	}
	server := redistest.Start(t)
	var processes []*process
	for range 10 {
		processes = append(processes, startAgain(t, server.Addr()))
	}
	for _, p := range processes {
		p.awaitReady(t)
	}
	for _, p := range processes {
		check(t, p.start.Close())
	}
	var log []allowedAttempt
	for _, p := range processes {
		log = append(log, p.log(t)...)
	}
	for _, l := range cfg.Limits {
		holds(t, l, log)
	}
	if len(log) != most {
		t.Errorf("%d of %d are allowed", len(log), most)
	}
}

// useUp prints that it is ready, and waits for the end of its input. It then lets 26 callers ask
// until the second limit is used up, and prints when each unit was allowed.
func useUp(t *testing.T, l *window.Limiter) {
	must(l.Peek(t.Context(), "e"))
	fmt.Println("ready")
	must(io.ReadAll(os.Stdin))
	var callers sync.WaitGroup
	at := make([][]int64, 26)
	for i := range at {
		callers.Go(func() {
			for {
				d := must(l.Allow(context.Background(), "e"))
				if d.Allowed {
					at[i] = append(at[i], d.At.UnixMilli())
				} else if d.Usage[1].Remaining == 0 {
					return
				}
			}
		})
	}
	callers.Wait()
	for _, ms := range slices.Concat(at...) {
		fmt.Println("allowed", ms)
	}
}

// A process is a run of this binary that executes the test that started it.
type process struct {
	*exec.Cmd
	start  io.Closer // the process waits until this is closed
	output *bufio.Scanner
}

func startAgain(t *testing.T, address string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // so that a hang is reported here
	t.Cleanup(cancel)
	p := &process{Cmd: exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$")}
	p.Env = append(os.Environ(), "SLIDEGATE_TEST_HOT="+address)
	p.start, p.output = must(p.StdinPipe()), bufio.NewScanner(must(p.StdoutPipe()))
	check(t, p.Start())
	return p
}

func (p *process) awaitReady(t *testing.T) {
	t.Helper()
	if !p.output.Scan() || p.output.Text() != "ready" {
		t.Fatalf("it is not ready: %q, %v", p.output.Text(), p.output.Err())
	}
}

// log waits for the end of the process, and returns the units that were allowed in it.
func (p *process) log(t *testing.T) (log []allowedAttempt) {
	t.Helper()
	for p.output.Scan() {
		if ms, found := strings.CutPrefix(p.output.Text(), "allowed "); found {
			log = append(log, allowedAttempt{time.UnixMilli(must(strconv.ParseInt(ms, 10, 64))), 1})
		}
	}
	check(t, p.Wait())
	return log
}
