// Command slidegate shows what limits do: what they would have done to a log (replay), and what they count now for an event in
// Redis (inspect), which it can also forget (reset). It limits requests on their way to a server (proxy), and it finds out whether
// the rate limit of a service keeps what it claims (audit).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

type commandLine struct {
	Version kong.VersionFlag `help:"Tell the version, and the Go that it was built with."`

	Replay  replayCommand  `cmd:"" help:"Show what limits would have done to a log."`
	Inspect inspectCommand `cmd:"" help:"Show what is counted for an event in Redis, and what is free."`
	Reset   resetCommand   `cmd:"" help:"Forget what is counted for an event in Redis."`
	Proxy   proxyCommand   `cmd:"" help:"Limit requests on their way to a server."`
	Audit   auditCommand   `cmd:"" help:"Find out whether the rate limit of a service keeps what it claims."`
}

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// run is the whole program. It returns the exit status: 0 or a cli.ExitStatus, 1 for an error, or 130 for an interrupt.
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
	text := strings.TrimPrefix(err.Error(), "slidegate: ") // the library's errors begin so
	_, _ = fmt.Fprintln(s.Err, screen.Wrap(screen.Bad("slidegate:")+" "+text))
	if ctx.Err() != nil {
		return 130
	}
	return 1
}
