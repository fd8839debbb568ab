// Command slidegate works with rate limits from the command line:
//
//   - replay shows what limits would have done to the attempts in a log
//   - inspect shows how much of its limits an event has used in Redis
//   - top lists the limiters in Redis and their fullest events
//   - reset deletes the counts of an event
//   - override temporarily gives an event other limits, and overrides lists these
//   - proxy is an HTTP reverse proxy that limits requests
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/inspect"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/proxyserver"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/replay"
)

type commandLine struct {
	Version cli.Version `help:"Print the version."`

	Replay    replay.Command      `cmd:"" help:"Show what limits would have done to a log."`
	Inspect   inspect.Command     `cmd:"" help:"Show how much of its limits an event has used, and what is left."`
	Top       inspect.Top         `cmd:"" help:"List the limiters in Redis, and their fullest events."`
	Reset     inspect.Reset       `cmd:"" help:"Delete the counts of an event from Redis."`
	Override  inspect.Override    `cmd:"" help:"Give an event other limits temporarily, while the service runs."`
	Overrides inspect.Overrides   `cmd:"" help:"List the overrides of a limiter."`
	Proxy     proxyserver.Command `cmd:"" help:"Run a reverse proxy that limits the requests to a server."`
}

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // it is ignored under nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, stop) // a second signal then ends the program immediately
	os.Exit(run(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// run runs the program. It returns the exit status: 0 or a cli.ExitStatus, 1 after an error, or 130
// after an interrupt.
func run(ctx context.Context, args []string, s cli.Streams) int {
	command, err := cli.Parse(&commandLine{}, args, s.Out)
	if err == nil && command != nil {
		command.BindTo(ctx, (*context.Context)(nil))
		err = command.Run(s)
	}
	var answer cli.ExitStatus
	if err == nil || errors.As(err, &answer) {
		return int(answer)
	}
	screen := output.ScreenOf(s.Err)
	text := strings.TrimPrefix(err.Error(), "slidegate: ") // the prefix of the library's errors
	_, _ = fmt.Fprintln(s.Err, screen.Wrap(screen.Bad("slidegate:")+" "+cli.Redact(text)))
	if ctx.Err() != nil {
		return 130
	}
	return 1
}
