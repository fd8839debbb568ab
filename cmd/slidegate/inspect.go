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

// Help returns the text of slidegate inspect --help.
func (inspectCommand) Help() string { return inspectHelp }

// inspectCommand is the command line of inspect.
type inspectCommand struct {
	subjectFlags
	Args struct {
		Name  flags.Argument `arg:"" optional:"" help:"The Name in the limiter's Config."`
		Event flags.Argument `arg:"" optional:"" help:"The event key, as the service passes it to Allow. Write -- before one that begins with a dash."`
		IP    *string        `arg:"" optional:"" help:"With --login: the IP address that the account is denied from."`
	} `embed:""`
	Login      bool           `help:"Treat NAME as a login guard and EVENT as an account, and show all budgets of the account."`
	Budgets    flags.Budgets  `name:"budget" placeholder:"BUDGET=MAX/PER" help:"With --login: the limits of a budget that does not have the defaults of package login, such as account=10/10m,20/1h. For several budgets, repeat the flag."`
	Challenged bool           `help:"With --login: the service uses challenges, such as a captcha. Also show their budgets, and whether a challenge would let the user in."`
	Limits     flags.Limits   `name:"limit" placeholder:"MAX/PER" help:"A limit of the service, such as 5/1h. With limits, inspect also shows what is free. For several, repeat the flag or write 1/5s,5/1h."`
	JSON       bool           `name:"json" help:"Print the report as one JSON object."`
	Watch      bool           `help:"Refresh every second, until interrupted."`
	Every      flags.Interval `placeholder:"5s" help:"Like --watch, but refresh at this interval, such as 5s; at least 100ms."`

	Web        flags.PageAddress `placeholder:"[ADDR]" help:"Serve a live web page at ADDR, until interrupted. NAME and EVENT are then optional. Default ADDR: 127.0.0.1:8002."`
	AllowReset bool              `help:"With --web: the page can reset events."`
}

// Run shows the state of the event, once or repeatedly.
func (c *inspectCommand) Run(ctx context.Context, s cli.Streams) error {
	command := inspect.Command{
		Subject: c.subject(c.Args.Name, c.Args.Event), Guard: inspect.Guard{Budgets: c.Budgets, Challenged: c.Challenged},
		IP: c.Args.IP, Login: c.Login, Limits: c.Limits, JSON: c.JSON, Watch: c.Watch, Every: c.Every, Web: c.Web, AllowReset: c.AllowReset,
	}
	return command.Run(ctx, s)
}

// subjectFlags are the flags that inspect and reset share: where to find the counts of an event.
type subjectFlags struct {
	Redis  flags.Redis  `placeholder:"HOST:PORT" env:"SLIDEGATE_REDIS" help:"The Redis server, or nodes of a cluster (host:port,host:port), or a URL such as rediss://user:password@host:6379. Default: 127.0.0.1:6379."`
	AR1    bool         `name:"ar1" help:"The limiter is of package ar1, which counts by decaying levels instead of windows."`
	Secret flags.Secret `name:"secret-file" placeholder:"FILE" help:"A file with the Secret of a limiter that hides events in its keys. A newline at the end of the file is ignored."`
}

// subject returns an event of the limiter that the flags name.
func (f *subjectFlags) subject(name, event flags.Argument) inspect.Subject {
	return inspect.Subject{Redis: f.Redis.Addresses, AR1: f.AR1, Secret: f.Secret, Name: string(name), Event: string(event)}
}
