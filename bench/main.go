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

	"github.com/slidegate/slidegate/internal/redistest"
)

func main() {
	b := bench{callers: []int{1, 16, 256}, log: log.New(os.Stderr, "", 0)}
	var out output
	addr := flag.String("redis", "", "`address` of an empty Redis, or of a node of an empty cluster, that nothing else uses; it is emptied over and over. Without it, a server is started here")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds; each asks every row about each of its events once")
	flag.IntVar(&b.events, "events", 12_000, "events of each row")
	flag.Func("callers", "`numbers` of callers at a time, which share one client and take turns (default 1,16,256)", b.setCallers)
	flag.Func("rows", "`regexp` of the rows to measure, beside "+rate+" and "+floor+"; under attack are all (default all)", func(s string) (err error) {
		b.rows, err = regexp.Compile(s)
		return err
	})
	flag.IntVar(&b.memory, "memory", 20_000, "events in the measurement of memory, which depends on how full the tables of the server are; 0: leave it out")
	flag.StringVar(&out.plots, "plots", "", "`directory` to draw the pictures of the result into, as SVG; relative to bench, such as ../docs")
	flag.BoolVar(&out.json, "json", false, "print one JSON object")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, b, *addr, out)
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
		if err != nil || n < 1 {
			return errors.New("give numbers from 1 on, such as 1,16,256")
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

// run measures on the Redis at addr, or on one of its own, and prints the result.
func run(ctx context.Context, b bench, addr string, out output) error {
	if b.rounds < 1 || b.events < 2 || b.memory < 0 || flag.NArg() > 0 {
		return errors.New("give at least 1 round, 2 events and 0 for -memory, and nothing that is not a flag")
	}
	if most := slices.Max(b.callers); most > b.slice() {
		return fmt.Errorf("%d callers want slices of as many decisions, and these have %d: give fewer callers or, up to slices of %d, more events", most, b.slice(), largest)
	}
	if b.events%b.slice() != 0 || b.rounds*b.events/b.slice() < len(b.callers) {
		return fmt.Errorf("give events that are a multiple of %d, and enough for a slice of each number of callers", b.slice())
	}
	if info, err := os.Stat(out.plots); out.plots != "" && (err != nil || !info.IsDir()) {
		return fmt.Errorf("%s is no directory to draw into", out.plots)
	}
	if addr == "" {
		own, stop, err := redistest.Serve()
		if err != nil {
			return err
		}
		defer stop()
		addr = own
	}
	var err error
	if b.servers, err = dial(ctx, addr, slices.Max(b.callers)); err != nil {
		return fmt.Errorf("cannot reach the Redis at %s: %w", addr, err)
	}
	defer b.close()
	res, err := b.run(ctx)
	if err != nil {
		return err
	}
	return out.write(res)
}
