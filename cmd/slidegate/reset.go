package main

import (
	"context"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/inspect"
)

// resetCommand is the command line of reset.
type resetCommand struct {
	subjectFlags
	Args struct {
		Name  flags.Argument `arg:"" help:"The Name in the limiter's Config."`
		Event flags.Argument `arg:"" help:"The event key, as the service passes it to Allow. Write -- before one that begins with a dash."`
	} `embed:""`
	Yes bool `help:"Delete without asking."`
}

// Help returns the text of slidegate reset --help.
func (resetCommand) Help() string {
	return "Shows what is stored for the event, asks for confirmation, and deletes its key from Redis. The event then has the full budget of every limit. Other events and other limiters keep their counts.\n\n" +
		"    slidegate reset login 198.51.100.7"
}

// Run deletes the counts of the event, if the user confirms it.
func (c *resetCommand) Run(ctx context.Context, s cli.Streams) error {
	command := inspect.Reset{Subject: c.subject(c.Args.Name, c.Args.Event), Yes: c.Yes}
	return command.Run(ctx, s)
}
