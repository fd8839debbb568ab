// Command bench measures what a decision of Slidegate costs a Redis server and its caller, beside other libraries, beside scripts that
// many use, and beside floors; what an event costs in memory; and whether each keeps its limit.
//
//	cd bench && go run . [-redis ADDR] [-rounds 5] [-events 12000] [-callers 1,16,256] [-rows REGEXP] [-memory 20000] [-plots DIR] [-json]
//
// Its result is ratios within one run: microseconds depend on the machine and on what else it does. Before each round it
// brings every event into the state that the row names. It checks that the server held as many keys, gave the answers and
// ran the scripts that the rows claim; if not, it fails.
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
	var at site
	var out output
	flag.StringVar(&at.addr, "redis", "", "`address` of an empty Redis, or of a node of an empty cluster, that nothing else uses; it is emptied over and over. Without it, a server is started here")
	flag.IntVar(&at.busy, "busy", 0, "`processes` beside the bench that use all the CPU they get")
	flag.DurationVar(&at.delay, "delay", 0, "`time` that the network adds to each round trip of the contenders, such as 500us")
	flag.Func("callers", "`numbers` of callers at a time, in throughput and hot (default 1,4,16,64,256)", b.setCallers)
	flag.IntVar(&b.turns, "turns", 9, "turns of throughput and hot; each has a slice of every contender with each number of callers")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds of server; each asks every row about each of its events once")
	flag.IntVar(&b.events, "events", 12_000, "events of each row of server")
	flag.Func("rows", "`regexp` of the rows to measure in throughput, hot and server (default all)", func(s string) (err error) {
		b.rows, err = regexp.Compile(s)
		return err
	})
	flag.IntVar(&b.memory, "memory", 20_000, "events in the measurement of memory, a part of server, which depends on how full the tables of the server are; 0: leave it out")
	flag.StringVar(&out.plots, "plots", "", "`directory` to draw the pictures of the result into, as SVG; relative to bench, such as ../docs")
	flag.BoolVar(&out.json, "json", false, "print one JSON object")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, b, at, flag.Args(), out)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// setCallers reads "1,16,256".
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

// output is what becomes of the result.
type output struct {
	json  bool
	plots string // directory; empty: none
}

// check returns what is wrong with the flags and the names of the parts.
func (b bench) check(names []string, out output) error {
	if b.rounds < 1 || b.turns < 1 || b.events < 2 || b.memory < 0 {
		return errors.New("give at least 1 turn, 1 round, 2 events and 0 for -memory")
	}
	for _, name := range names {
		if parts[name] == nil {
			return fmt.Errorf("there is no part %q: give some of %s, after the flags", name, strings.Join(order, ", "))
		}
	}
	if info, err := os.Stat(out.plots); out.plots != "" && (err != nil || !info.IsDir()) {
		return fmt.Errorf("%s is no directory to draw into", out.plots)
	}
	if out.plots != "" && (!slices.Contains(names, "throughput") || !slices.Contains(names, "server")) {
		return errors.New("the pictures show throughput and server: measure both")
	}
	return nil
}

// run measures the parts, all by default, and prints the result.
func run(ctx context.Context, b bench, at site, names []string, out output) error {
	if len(names) == 0 {
		names = order
	}
	if err := b.check(names, out); err != nil {
		return err
	}
	res := result{Rounds: b.rounds, Events: b.events}
	stop, err := at.prepare(ctx, &b.servers, &res.conditions)
	defer stop()
	if err != nil {
		return err
	}
	if err := b.run(ctx, names, &res); err != nil {
		return err
	}
	return out.write(res)
}
