// Command bench measures what a decision of Slidegate costs a Redis server and its caller, beside other libraries, beside scripts that
// many use, and beside floors; and what an event costs in memory.
//
//	cd bench && go run . [-redis ADDR] [-rounds 7] [-events 20000] [-callers 16] [-memory 20000] [-json]
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

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

func main() {
	var b bench
	addr := flag.String("redis", "", "`address` of an empty Redis that nothing else uses; it is emptied over and over. Without it, a redis-server is started here")
	flag.IntVar(&b.rounds, "rounds", 7, "rounds; each asks every row about each of its events once")
	flag.IntVar(&b.events, "events", 20_000, "events of each row")
	flag.IntVar(&b.callers, "callers", 16, "callers at a time, which share one pipeline")
	flag.IntVar(&b.memory, "memory", 20_000, "events in the measurement of memory; 0: leave it out")
	asJSON := flag.Bool("json", false, "print one JSON object")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, b, *addr, *asJSON)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures on the Redis at addr, or on one of its own, and prints the result.
func run(ctx context.Context, b bench, addr string, asJSON bool) error {
	if b.rounds < 1 || b.callers < 1 || b.events < 2 || b.memory < 0 || flag.NArg() > 0 {
		return errors.New("give at least 1 round, 1 caller and 2 events, and nothing that is not a flag")
	}
	if addr == "" {
		server, err := startServer(ctx)
		if err != nil {
			return err
		}
		defer server.stop()
		addr = server.addr
	}
	client, err := dial(addr)
	if err != nil {
		return fmt.Errorf("cannot reach the Redis at %s: %w", addr, err)
	}
	defer client.Close()
	b.theirs = redis.NewClient(&redis.Options{Addr: addr, PoolSize: b.callers})
	defer func() { _ = b.theirs.Close() }()
	b.addr, b.client, b.log = addr, client, log.New(os.Stderr, "", 0)
	res, err := b.run(ctx)
	if err != nil {
		return err
	}
	return res.print(os.Stdout, asJSON)
}

// dial makes the one client that all callers share.
func dial(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, AlwaysPipelining: true, DisableCache: true,
	})
}
