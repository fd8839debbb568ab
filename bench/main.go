// Command bench measures what a Slidegate decision costs, compared with other rate limiters,
// commonly written scripts, and scripts that decide nothing.
//
//	cd bench && go run . [flags] [parts]
//
// The parts are listed below. If none is given, the bench measures all of them:
//
//   - throughput: decisions per second by many callers on many events, the median and the 99th
//     percentile of a call, the CPU used by this process and by the server, and the allocations and
//     script calls per decision. Each contender uses the client that its users have, with default
//     settings. The rows "window, go-redis" use the same client as the other libraries.
//   - hot: the same, with all callers on one event.
//   - server: the time in the server, allocations, memory and replication, with 16 callers.
//   - accuracy: whether each contender enforces its limit under attack.
//   - pace: how evenly calls are spaced and what a turn costs, if three processes with 20 callers
//     each wait for turns of one event every 20 ms.
//   - inflight: what it costs to take and release a lease, how soon waiting callers get a place,
//     which processes get it, and how much memory leases take.
//
// Results are ratios within one run, because absolute figures depend on the machine and its other
// load. Short slices of all contenders alternate. Before each slice of throughput and hot, and
// before each round of server, every event is put into the state that the row names. A run fails if
// outcomes, keys or script calls differ from what a row claims.
//
// Each of these commands answers one question about a change:
//
//	# what the library adds to its script
//	go run . -callers 1,4,8,16,32,64,256 -rows '^window(\.lua)?$' throughput
//	# the same, on a busy machine
//	go run . -callers 1,4,8,16,32,64,256 -rows '^window(\.lua)?$' -busy 2 throughput
//	# the same, over a network
//	go run . -callers 1,4,8,16,32,64,256 -rows '^window(\.lua)?$' -delay 500us throughput
//	# client CPU, compared with the smallest script
//	go run . -callers 64,256 -rows '^(window|constant)$' throughput
//	# redis_rate: throughput, and CPU of client and server
//	go run . -callers 16,64,256 -rows '^(window|redis_rate)(, 3 limits)?$' throughput
//	# window on both clients, and redis_rate on go-redis
//	go run . -callers 16,64,256 -rows '^(window|window, go-redis|redis_rate)$' throughput
//	# the library compared with an earlier revision: on both clients, and a login
//	./earlier.sh REVISION -callers 1,16,64,256 -passes 30 -rows '^(window(, go-redis)?|login)( before)?(, hot.*)?$' throughput hot
//	# server time and allocations, compared with an earlier revision
//	./earlier.sh REVISION -rows '^window( before)?(, 3 limits)?$' -memory 0 server
//	# how long the server makes other clients wait, compared with an earlier revision
//	./earlier.sh REVISION -ping -callers 64,256,1024 -passes 15 -rows '^window( before)?$' throughput
//	# every package compared with an earlier revision: in memory, ar1, pace, login and inflight
//	./earlier.sh REVISION -passes 15 -rows '^(window(, in memory)?|ar1|pace|login|inflight(, full)?)( before)?$' throughput inflight
//	# INCREX compared with INCR and window, on a server that supports it
//	go run . -rows '^(window|fixed window, INCR(EX)?)(, denied)?$' server
//	# what a pace turn costs, compared with a window decision
//	go run . -callers 1,16,64 -passes 15 -rows '^(window|pace)$' throughput server
//	# what an inflight lease costs, and how much memory leases take
//	go run . -callers 1,16,64 -passes 15 inflight
//	# one event used by ten processes: exactly Max are allowed
//	go test -run TestTenProcesses -v .
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	actAsChild()
	b := bench{callers: []int{1, 4, 16, 64, 256}, slice: 100 * time.Millisecond, log: log.New(os.Stderr, "", 0)}
	var env environment
	var out output
	flag.StringVar(&env.addr, "redis", "", "`address` of an empty Redis server, or of a node of an empty cluster, that nothing else uses; it is emptied repeatedly. Without it, the bench starts a server")
	flag.IntVar(&env.busy, "busy", 0, "number of other `processes` that use as much CPU as they can get")
	flag.DurationVar(&env.delay, "delay", 0, "`time` that a simulated network adds to each of the contenders' round trips, such as 500us")
	flag.BoolVar(&env.ping, "ping", false, "in throughput and hot, also measure how long PINGs from another process take")
	flag.Func("callers", "`numbers` of concurrent callers in throughput, hot and inflight; inflight ignores numbers above 64 (default 1,4,16,64,256)", b.setCallers)
	flag.IntVar(&b.passes, "passes", 9, "passes of throughput, hot and inflight; each has a slice of 100 ms for every contender and number of callers")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds of server, pace and inflight. Each round of server makes one decision on each event of every contender; each round of pace and inflight has a span of every contender")
	flag.DurationVar(&b.span, "span", 10*time.Second, "`time` that each contender of pace and inflight has in a round, at least 1s")
	flag.IntVar(&b.events, "events", 12_000, "events per contender in server")
	flag.Func("rows", "`regexp` of the contenders to measure in throughput, hot, server, pace and inflight (default all)", func(s string) (err error) {
		b.rows, err = regexp.Compile(s)
		return err
	})
	flag.IntVar(&b.memory, "memory", 20_000, "events when server measures memory, and leases when inflight does. The result depends on how full the server's hash tables are; 0 omits the measurement")
	flag.StringVar(&out.plots, "plots", "", "`directory` for pictures of the result, as SVG, and for their figures, in bench.json; relative to bench, such as ../docs")
	flag.BoolVar(&out.json, "json", false, "print one JSON object")
	flag.Usage = usage
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, b, env, flag.Args(), out)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintf(os.Stderr, "usage: bench [flags] [parts]\n\nThe parts are %s; without any, all are measured.\n\n", strings.Join(order, ", "))
	flag.PrintDefaults()
}

// setCallers parses a list of numbers such as "1,16,256".
func (b *bench) setCallers(s string) error {
	b.callers = nil
	for _, text := range strings.Split(s, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > pool {
			return fmt.Errorf("give numbers from 1 to %d, such as 1,16,256", pool)
		}
		b.callers = append(b.callers, n)
	}
	return nil
}

// output says what to do with the results.
type output struct {
	json  bool
	plots string // a directory; empty means none
}

// check returns an error if a flag or the name of a part is invalid.
func (b bench) check(names []string, out output) error {
	if b.rounds < 1 || b.passes < 1 || b.events < 2 || b.memory < 0 || b.span < time.Second {
		return errors.New("give at least 1 pass, 1 round, 2 events, a span of 1s, and 0 for -memory")
	}
	for _, name := range names {
		if parts[name] == nil {
			return fmt.Errorf("there is no part %q; give one or more of %s, after the flags", name, strings.Join(order, ", "))
		}
	}
	if info, err := os.Stat(out.plots); out.plots != "" && (err != nil || !info.IsDir()) {
		return fmt.Errorf("%s is not a directory; name one for the pictures", out.plots)
	}
	if out.plots != "" && (!slices.Contains(names, "throughput") || !slices.Contains(names, "server")) {
		return errors.New("the pictures show throughput and server; measure both")
	}
	return nil
}

// run measures the named parts, or all parts if none is named, and prints the result.
func run(ctx context.Context, b bench, env environment, names []string, out output) (err error) {
	if len(names) == 0 {
		names = order
	}
	if err := b.check(names, out); err != nil {
		return err
	}
	if env.busy < 0 || env.delay < 0 {
		return errors.New("give at least 0 for -busy and -delay")
	}
	var res result
	defer env.close()
	if b.servers, res.conditions, err = env.open(ctx); err != nil {
		return err
	}
	if b.beside, err = env.startPing(); err != nil {
		return err
	}
	if err := b.run(ctx, names, &res); err != nil {
		return err
	}
	return out.write(res)
}
