package main

import (
	"context"
	_ "embed" // for the help

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/proxyserver"
)

//go:embed proxy.txt
var proxyHelp string

// Help is shown by slidegate proxy --help.
func (proxyCommand) Help() string { return proxyHelp }

// proxyCommand is the command line of proxy. Its fields are those of proxyserver.Command.
type proxyCommand struct {
	To      flags.Upstream `placeholder:"URL" help:"The server that requests go on to, such as http://127.0.0.1:8080."`
	Listen  flags.Text     `placeholder:"ADDR" default:":8000" help:"Where clients come in. Without it: :8000, on all interfaces."`
	Admin   flags.Text     `placeholder:"ADDR" default:"127.0.0.1:8001" help:"Where operators find a page that shows it live, /healthz, /metrics and /over. Without it: 127.0.0.1:8001."`
	Limits  flags.Limits   `name:"limit" placeholder:"MAX/PER" help:"At most MAX requests in any span of PER, such as 10/1s or 1000/1h, for the requests of no --route. Repeat it, or write 10/1s,1000/1h, for more."`
	By      flags.Who      `placeholder:"WHO" help:"Who is limited: address, header:NAME, cookie:NAME, or all for one budget. Without it: address, an IPv4 address or the /64 of an IPv6 one."`
	Routes  flags.Routes   `name:"route" placeholder:"ROUTE" help:"Requests with limits of their own: a pattern, limits or none, and by WHO if that is not --by. Such as 'POST /login 1/5s,5/1h by address'. Repeat it for more."`
	Behind  flags.Networks `placeholder:"NETWORK" help:"Proxies in front of this one, as 10.0.0.1 or 10.0.0.0/24: the address is then what they say in X-Forwarded-For. Repeat it for more; name nothing that is not yours."`
	Redis   flags.Redis    `placeholder:"HOST:PORT" env:"SLIDEGATE_REDIS" help:"The Redis that holds the budgets of all instances, or nodes of the cluster (host:port,host:port), or a URL such as rediss://user:password@host:6379. Without it each instance has budgets of its own, in memory."`
	Outage  flags.Outage   `placeholder:"WHAT" help:"What to do while Redis does not answer: local (each instance decides in its memory), open (admit) or closed (refuse, 503). Without it: local."`
	Shadow  bool           `help:"Refuse nothing: every request reaches the server. The log, /metrics and /over show what the limits would have done."`
	Timeout flags.Timeout  `placeholder:"TIME" help:"How long a request waits for Redis at most. Without it: 500ms."`
	Name    flags.Text     `default:"proxy" placeholder:"NAME" help:"The name of the limiter in Redis: proxies of one name share budgets. Without it: proxy."`
	Secret  flags.Secret   `name:"secret-file" placeholder:"FILE" help:"Hide who is limited, in Redis and in what is told, under a secret: what the file holds, but for a newline at its end."`

	AllowReset bool `help:"The page of --admin can forget what is counted for an event."`
}

// Run runs the proxy until ctx ends.
func (c *proxyCommand) Run(ctx context.Context, s cli.Streams) error {
	command := proxyserver.Command(*c)
	return command.Run(ctx, s.Err)
}
