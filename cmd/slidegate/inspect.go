package main

import (
	"context"
	_ "embed" // for the help

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/inspect"
)

//go:embed inspect.txt
var inspectHelp string

// Help is shown by slidegate inspect --help.
func (inspectCommand) Help() string { return inspectHelp }

// inspectCommand is the command line of inspect.
type inspectCommand struct {
	subjectFlags
	Args struct {
		Name  flags.Argument `arg:"" optional:"" help:"The Name of the limiter."`
		Event flags.Argument `arg:"" optional:"" help:"The event, as the service names it. One that begins with a dash comes after --."`
		IP    *string        `arg:"" optional:"" help:"With --login: the IP address that the account is denied from."`
	} `embed:""`
	Login      bool           `help:"NAME is that of a login guard, and EVENT an account: shows all budgets of the account."`
	Budgets    flags.Budgets  `name:"budget" placeholder:"BUDGET=MAX/PER" help:"With --login: the limits of a budget, if they are not the defaults of login, such as account=10/10m,20/1h. Repeat it for more."`
	Challenged bool           `help:"With --login: the service has challenges. Shows their budgets, too, and whether a challenge would let the user in."`
	Limits     flags.Limits   `name:"limit" placeholder:"MAX/PER" help:"A limit of the service, such as 5/1h: shows what is free, too. Repeat it, or write 1/5s,5/1h, for more."`
	JSON       bool           `name:"json" help:"Print one JSON object."`
	Watch      bool           `help:"Look again every second, until interrupted."`
	Every      flags.Interval `placeholder:"5s" help:"As --watch, but look so often."`

	Web        flags.PageAddress `placeholder:"[ADDR]" help:"Serve a page that shows it live, at ADDR or else at 127.0.0.1:8002, until interrupted. NAME and EVENT are then optional."`
	AllowReset bool              `help:"With --web: the page can forget what is counted."`
}

// Run shows the state of the event, once or again and again.
func (c *inspectCommand) Run(ctx context.Context, s cli.Streams) error {
	command := inspect.Command{
		Subject: c.subject(c.Args.Name, c.Args.Event), Guard: inspect.Guard{Budgets: c.Budgets, Challenged: c.Challenged},
		IP: c.Args.IP, Login: c.Login, Limits: c.Limits, JSON: c.JSON, Watch: c.Watch, Every: c.Every, Web: c.Web, AllowReset: c.AllowReset,
	}
	return command.Run(ctx, s)
}

// subjectFlags are the flags of inspect and reset that say where an event is counted.
type subjectFlags struct {
	Redis  flags.Redis  `placeholder:"HOST:PORT" env:"SLIDEGATE_REDIS" help:"The Redis, or nodes of the cluster (host:port,host:port), or a URL such as rediss://user:password@host:6379. Without it: 127.0.0.1:6379."`
	AR1    bool         `name:"ar1" help:"The limiter is one of ar1: it counts by levels, not by windows."`
	Secret flags.Secret `name:"secret-file" placeholder:"FILE" help:"The Secret of a limiter that hides events in its keys: what the file holds, but for a newline at its end."`
}

// subject returns an event of the limiter that the flags name.
func (f *subjectFlags) subject(name, event flags.Argument) inspect.Subject {
	return inspect.Subject{Redis: f.Redis.Addresses, AR1: f.AR1, Secret: f.Secret, Name: string(name), Event: string(event)}
}
