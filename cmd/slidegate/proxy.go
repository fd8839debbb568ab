package main

import (
	"cmp"
	"context"
	_ "embed" // for the help
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/page"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/proxy"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

//go:embed proxy.txt
var proxyHelp string

// Help is shown by slidegate proxy --help.
func (proxyCommand) Help() string { return proxyHelp }

// proxyCommand is the command line of proxy.
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
	log := slog.New(slog.NewTextHandler(s.Err, nil))
	cfg, err := c.config(log)
	if err != nil {
		return err
	}
	first, failed := context.WithTimeout(ctx, time.Duration(c.Timeout))
	defer failed()
	if c.shared() {
		cfg.Redis = window.Connect(c.dial(log, failed))
		defer cfg.Redis.Close() // after the last request
	}
	return c.serve(ctx, first, cfg)
}

// serve runs the proxy until ctx ends. It waits for a connection to Redis until first ends.
func (c *proxyCommand) serve(ctx, first context.Context, cfg proxy.Config) error {
	p, err := proxy.New(cfg)
	if err != nil {
		return err
	}
	p.Page = page.New(c.page(p))
	public, admin, err := c.ports(ctx)
	if err != nil {
		return err
	}
	if cfg.Redis != nil {
		_ = cfg.Redis.Wait(first) // without one, the proxy does what --outage says
	}
	c.begin(cfg.Log, public, admin)
	return p.Serve(ctx, public, admin)
}

// redialPause is how long a window.Connection waits after a failure.
const redialPause = time.Second

// dial returns a function that connects to Redis. It logs each different error once, and calls failed
// after each.
func (c *proxyCommand) dial(log *slog.Logger, failed func()) func(context.Context) (rueidis.Client, error) {
	logged := ""
	return func(ctx context.Context) (rueidis.Client, error) {
		client, err := c.Redis.Serve(ctx)
		if err == nil {
			log.Info("budgets are shared", "redis", c.Redis, "name", c.Name)
			return client, nil
		}
		if err.Error() != logged && ctx.Err() == nil {
			logged = err.Error()
			log.Error(logged, "meanwhile", c.Outage, "again every", redialPause)
		}
		failed()
		return nil, err
	}
}

// config returns the configuration of the proxy by the flags, without the connection to Redis.
func (c *proxyCommand) config(log *slog.Logger) (cfg proxy.Config, err error) {
	switch {
	case c.To.URL == nil:
		return cfg, errors.New("--to is missing; name the server that requests go on to, as in --to http://127.0.0.1:8080")
	case len(c.Limits) == 0 && len(c.Routes) == 0:
		return cfg, errors.New("there is nothing to limit; write --limit 10/1s, or a --route")
	case len(c.Secret) > 0 && len(c.Secret) < leastSecret:
		return cfg, fmt.Errorf("--secret-file holds %d bytes, which can be guessed; write %d random ones or more, as by head -c 32 /dev/urandom", len(c.Secret), leastSecret)
	case !c.shared() && c.Outage != "":
		return cfg, errors.New("--outage is about a Redis that does not answer, and there is none; write --redis, or leave it out")
	case !c.shared() && c.Timeout != 0:
		return cfg, errors.New("--timeout is about waiting for a Redis, and there is none; write --redis, or leave it out")
	}
	if c.Outage == "" {
		c.Outage = flags.Outage(proxy.Local)
	}
	if c.Timeout == 0 {
		c.Timeout = flags.Timeout(500 * time.Millisecond)
	}
	cfg = proxy.Config{
		To: c.To.URL, Behind: c.Behind, Name: string(c.Name), Secret: c.Secret,
		Timeout: time.Duration(c.Timeout), Outage: proxy.Outage(c.Outage), Shadow: c.Shadow, Log: log,
	}
	cfg.Routes, err = c.routes()
	return cfg, err
}

const leastSecret = 16 // bytes, as window.Config has it

// shared reports whether the budgets are in Redis.
func (c *proxyCommand) shared() bool { return len(c.Redis.InitAddress) > 0 }

// routes are those of the flags. --limit is the one of the requests that match no other.
func (c *proxyCommand) routes() ([]proxy.Route, error) {
	if len(c.Limits) > 0 {
		c.Routes = append(c.Routes, flags.Route{Pattern: "/", Limits: c.Limits})
	}
	address, err := c.address()
	if err != nil {
		return nil, err
	}
	rs := make([]proxy.Route, len(c.Routes))
	for i := range c.Routes {
		rt := &c.Routes[i]
		if rt.By.Text == "" {
			rt.By = c.By
		}
		if rs[i] = (proxy.Route{Pattern: rt.Pattern, Limits: rt.Limits, Key: rt.By.Key}); rt.By.Key == nil {
			rs[i].Key = address
		}
	}
	return rs, nil
}

// address is the key of clients by their address.
func (c *proxyCommand) address() (httplimit.Key, error) {
	if len(c.Behind) == 0 {
		return httplimit.Address, nil
	}
	names := make([]string, len(c.Behind))
	for i, n := range c.Behind {
		names[i] = n.String()
	}
	return httplimit.AddressBehind(names...)
}

// ports opens those for clients and for operators.
func (c *proxyCommand) ports(ctx context.Context) (public, admin net.Listener, err error) {
	if public, err = c.listen(ctx, "--listen", c.Listen, ":8000"); err != nil {
		return nil, nil, err
	}
	if admin, err = c.listen(ctx, "--admin", c.Admin, "127.0.0.1:8001"); err != nil {
		_ = public.Close()
		return nil, nil, err
	}
	if leadsTo(ctx, c.To.URL, public) {
		_, _ = public.Close(), admin.Close()
		return nil, nil, fmt.Errorf("--to %v is where the proxy itself listens; name the server, or another --listen", c.To)
	}
	return public, admin, nil
}

// listen opens a port.
func (c *proxyCommand) listen(ctx context.Context, flag string, addr flags.Text, example string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", string(addr))
	if err != nil {
		return nil, fmt.Errorf("%s: %w; write an address of this machine with a free port, as in %s", flag, err, example)
	}
	return l, nil
}

// leadsTo reports whether a URL leads to the listener. It finds out by a socket for UDP, which sends nothing, but knows both its ends.
func leadsTo(ctx context.Context, to *url.URL, listener net.Listener) bool {
	port := cmp.Or(to.Port(), map[string]string{"http": "80", "https": "443"}[to.Scheme])
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "udp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return false // no such server yet
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	own, far, near := listener.Addr().(*net.TCPAddr), conn.RemoteAddr().(*net.UDPAddr), conn.LocalAddr().(*net.UDPAddr)
	here := far.IP.IsLoopback() || far.IP.Equal(near.IP)
	return here && far.Port == own.Port && (own.IP.IsUnspecified() || own.IP.Equal(far.IP))
}

// begin tells what is limited, and where.
func (c *proxyCommand) begin(log *slog.Logger, public, admin net.Listener) {
	for _, rt := range c.Routes {
		if len(rt.Limits) == 0 {
			log.Info("route without limits", "route", rt.Pattern)
			continue
		}
		by := rt.By.Text
		if by == "" {
			by = "address"
		}
		log.Info("route", "route", rt.Pattern, "limits", rt.Limits, "by", by)
		if rt.By.Key != nil && by != "all" && c.Secret == nil {
			log.Warn("who is limited stands in clear in the log, in /over and in Redis; a --secret-file hides it", "route", rt.Pattern, "by", by)
		}
	}
	if len(c.Limits) == 0 {
		log.Warn("requests of no route are not limited; --limit limits them, too")
	}
	if !c.shared() {
		log.Warn("budgets are in the memory of this instance, and gone when it ends; others have their own, unless all have one --redis")
	}
	if c.AllowReset && !page.OnLoopback(admin.Addr()) {
		log.Warn("everybody who reaches --admin can have counts forgotten; keep others away from it", "admin", admin.Addr())
	}
	if c.Shadow {
		log.Warn("shadow: every request reaches the server; the log, /metrics and /over show what the limits would have done")
	}
	log.Info("ready", "listen", public.Addr(), "to", c.To, "admin", admin.Addr())
}
