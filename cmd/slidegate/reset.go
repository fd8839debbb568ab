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
		Name  flags.Argument `arg:"" help:"The Name of the limiter."`
		Event flags.Argument `arg:"" help:"The event, as the service names it. One that begins with a dash comes after --."`
	} `embed:""`
	Yes bool `help:"Forget without a question."`
}

// Help is shown by slidegate reset --help.
func (resetCommand) Help() string {
	return "Shows what is stored for the event, asks, and removes its key from Redis. All limits of the limiter are then as if never used by it; other events and other limiters keep their counts.\n\n" +
		"    slidegate reset login 198.51.100.7"
}

// Run forgets the event, if that is what the user wants.
func (c *resetCommand) Run(ctx context.Context, s cli.Streams) error {
	command := inspect.Reset{Subject: c.subject(c.Args.Name, c.Args.Event), Yes: c.Yes}
	return command.Run(ctx, s)
}
