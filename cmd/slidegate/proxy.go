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

// Help returns the text of slidegate proxy --help.
func (proxyCommand) Help() string { return proxyHelp }

// proxyCommand is the command line of proxy. It has the same fields as proxyserver.Command.
type proxyCommand struct {
	To      flags.Upstream `placeholder:"URL" help:"The server to forward requests to, such as http://127.0.0.1:8080."`
	Listen  flags.Text     `placeholder:"ADDR" default:":8000" help:"The address to listen on for clients. Default: :8000, on all interfaces."`
	Admin   flags.Text     `placeholder:"ADDR" default:"127.0.0.1:8001" help:"The address to listen on for operators: a live page, /healthz, /metrics and /over. Default: 127.0.0.1:8001."`
	Limits  flags.Limits   `name:"limit" placeholder:"MAX/PER" help:"At most MAX requests in any window of length PER, such as 10/1s or 1000/1h, for requests that match no --route. For several limits, repeat the flag or write 10/1s,1000/1h."`
	By      flags.Who      `placeholder:"WHO" help:"Who shares a budget: address, header:NAME, cookie:NAME, or all for one common budget. Default: address, which is an IPv4 address or an IPv6 /64."`
	Routes  flags.Routes   `name:"route" placeholder:"ROUTE" help:"Separate limits for some requests: a pattern, then limits or none, then optionally by WHO instead of --by. Example: 'POST /login 1/5s,5/1h by address'. For several routes, repeat the flag."`
	Behind  flags.Networks `placeholder:"NETWORK" help:"Trusted proxies in front of this one, such as 10.0.0.1 or 10.0.0.0/24: the client's address is then taken from X-Forwarded-For. Name only proxies of your own. For several, repeat the flag."`
	Redis   flags.Redis    `placeholder:"HOST:PORT" env:"SLIDEGATE_REDIS" help:"The Redis server that all instances share, or nodes of a cluster (host:port,host:port), or a URL such as rediss://user:password@host:6379. Without it, each instance counts alone, in memory."`
	Outage  flags.Outage   `placeholder:"WHAT" help:"What to do while Redis does not answer: local (each instance limits alone, in memory), open (admit all) or closed (deny all, with 503). Default: local."`
	Shadow  bool           `help:"Dry run: forward every request. The log, /metrics and /over show what the limits would have denied."`
	Timeout flags.Timeout  `placeholder:"TIME" help:"How long a request waits for Redis at most, from 1ms to 1m. Default: 500ms."`
	Name    flags.Text     `default:"proxy" placeholder:"NAME" help:"The name of the limiter in Redis. Proxies with the same name share budgets. Default: proxy."`
	Secret  flags.Secret   `name:"secret-file" placeholder:"FILE" help:"Hide who is limited, in Redis, in the log and in /over, by the secret in FILE, which has at least 16 bytes. A newline at the end of the file is ignored."`

	AllowReset bool `help:"The page of --admin can reset events."`
}

// Run runs the proxy until ctx ends.
func (c *proxyCommand) Run(ctx context.Context, s cli.Streams) error {
	command := proxyserver.Command(*c)
	return command.Run(ctx, s.Err)
}
