// Package proxyserver runs a rate-limiting proxy as configured by flags. It sets up the proxy's
// ports, its connection to Redis and its live page.
package proxyserver

import (
	"cmp"
	"context"
	_ "embed" // for the help text
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/page"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/proxy"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/window"
)

// Command represents "slidegate proxy" and its flags.
type Command struct {
	To         flags.Upstream   `placeholder:"URL" help:"The server, such as http://127.0.0.1:8080."`
	Listen     flags.Text       `placeholder:"ADDR" default:":8000" help:"Where to listen for clients. Default: :8000."`
	Admin      flags.Text       `placeholder:"ADDR" default:"127.0.0.1:8001" help:"Where to listen for operators: a live page, /healthz, /metrics, /over. Default: 127.0.0.1:8001."`
	Limits     flags.Limits     `name:"limit" placeholder:"MAX/PER" help:"At most MAX requests in any window of length PER, for requests that match no --route. For several, repeat the flag or write 10/1s,1000/1h."`
	By         flags.Who        `placeholder:"WHO" help:"Who shares a budget: address, header:NAME, cookie:NAME, or all. Default: address (IPv6: /64)."`
	Routes     flags.Routes     `name:"route" placeholder:"ROUTE" help:"Other limits for some requests: a pattern, limits or none, and by WHO if it differs. Example: 'POST /login 1/5s,5/1h by address'."`
	Behind     flags.Networks   `placeholder:"NETWORK" help:"Your proxies in front of this one, such as 10.0.0.0/24. The address is then taken from X-Forwarded-For."`
	Redis      flags.Redis      `placeholder:"HOST:PORT" env:"SLIDEGATE_REDIS" help:"The Redis that all instances share: host:port, nodes of a cluster, or a URL. Default: in memory."`
	RedisFiles flags.RedisFiles `embed:""`
	Outage     flags.Outage     `placeholder:"WHAT" help:"While Redis does not answer: local (limit in memory), open (allow all) or closed (503). Default: local."`
	Shadow     bool             `help:"Dry run: forward every request, and only report what would have been denied."`
	Timeout    flags.Timeout    `placeholder:"TIME" help:"How long a request waits for Redis, from 1ms to 1m. Default: 500ms."`
	Name       flags.Text       `default:"proxy" placeholder:"NAME" help:"The name of the limiter in Redis. Default: proxy."`
	Secret     flags.Secret     `name:"secret-file" placeholder:"FILE" help:"Hide who is limited, in Redis, the log and /over, with the secret in FILE."`

	AllowReset bool `help:"The page of --admin can reset events."`
}

//go:embed help.txt
var help string

// Help returns the text of slidegate proxy --help.
func (Command) Help() string { return help }

// Run runs the proxy until ctx is done. It logs to standard error.
func (c *Command) Run(ctx context.Context, s cli.Streams) error {
	screen := output.ScreenOf(s.Err)
	log := c.newLog(s.Err, screen.Terminal)
	cfg, err := c.Config(log)
	if err != nil {
		return err
	}
	first, failed := context.WithTimeout(ctx, time.Duration(c.Timeout))
	defer failed()
	if c.shared() {
		cfg.Redis = (*window.Connection)(connection.Dial(c.dial(log, failed)))
		defer cfg.Redis.Close() // after the last request has finished
	}
	return c.serve(ctx, first, cfg, func(public, admin net.Addr) {
		if !screen.Terminal {
			log.Info("ready", "listen", public, "to", c.To, "admin", admin)
			return
		}
		ready := fmt.Sprintf("ready: forwarding requests from %v to %v", public, c.To)
		_, _ = fmt.Fprintf(s.Err, "\n%s\nnext: open http://%v/ to see who is limited\n\n", screen.Bold(ready), admin)
	})
}

// newLog returns a logger that writes key=value pairs. It removes the Redis user and password from
// errors. On a terminal, it omits the date, and the level if that is INFO.
func (c *Command) newLog(stderr io.Writer, terminal bool) *slog.Logger {
	return slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if err, isError := a.Value.Any().(error); isError {
			return slog.String(a.Key, c.Redis.Redact(err.Error()))
		}
		if terminal {
			return brief(a)
		}
		return a
	}}))
}

// brief shortens the time of a log line, and removes the level if that is INFO.
func brief(a slog.Attr) slog.Attr {
	switch v := a.Value; {
	case v.Kind() == slog.KindTime:
		a.Value = slog.StringValue(v.Time().Format(time.TimeOnly))
	case v.Any() == slog.LevelInfo:
		return slog.Attr{}
	}
	return a
}

// serve runs the proxy until ctx is done. It waits for a connection to Redis until first is done.
func (c *Command) serve(ctx, first context.Context, cfg proxy.Config, ready func(public, admin net.Addr)) error {
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
		_ = cfg.Redis.Wait(first) // without a connection, the proxy does what --outage says
	}
	c.logStart(cfg.Log, admin)
	ready(public.Addr(), admin.Addr())
	return p.Serve(ctx, public, admin)
}

// redialPause is how long a window.Connection pauses after a failure.
const redialPause = time.Second

// dial returns a function that connects to Redis. It logs each distinct error once, and calls
// failed after every error.
func (c *Command) dial(log *slog.Logger, failed func()) func(context.Context) (rueidis.Client, error) {
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

// Config returns the configuration of the proxy, without its connection to Redis. It reads the
// files needed for that connection, and returns an error if flags conflict.
func (c *Command) Config(log *slog.Logger) (cfg proxy.Config, err error) {
	files := c.RedisFiles.Names()
	switch {
	case c.To.URL == nil:
		return cfg, errors.New("--to is missing; name the server to forward requests to, as in --to http://127.0.0.1:8080")
	case len(c.Limits) == 0 && len(c.Routes) == 0:
		return cfg, errors.New("there is nothing to limit; write --limit 10/1s, or a --route")
	case len(c.Secret) > 0 && len(c.Secret) < keys.MinSecret:
		return cfg, fmt.Errorf("--secret-file holds %d bytes, which can be guessed; write at least %d random ones, as with head -c 32 /dev/urandom", len(c.Secret), keys.MinSecret)
	case !c.shared() && c.Outage != "":
		return cfg, errors.New("--outage applies only with a Redis, and there is none; write --redis, or leave it out")
	case !c.shared() && c.Timeout != 0:
		return cfg, errors.New("--timeout applies only with a Redis, and there is none; write --redis, or leave it out")
	case !c.shared() && len(files.Flags()) > 0:
		return cfg, fmt.Errorf("%s applies only with a Redis, and there is none; write --redis, or leave it out", files.Flags()[0][0])
	}
	if err := c.Redis.Read(files); err != nil {
		return cfg, err
	}
	if c.Outage == "" {
		c.Outage = flags.Outage(proxy.Local)
	}
	if c.Timeout == 0 {
		c.Timeout = flags.Timeout(500 * time.Millisecond)
	}
	cfg = proxy.Config{
		To: c.To.URL, Behind: c.Behind, Name: string(c.Name), Secret: c.Secret,
		Timeout: time.Duration(c.Timeout), Outage: httplimit.Outage(c.Outage), Shadow: c.Shadow, Log: log,
	}
	cfg.Routes, err = c.routes()
	return cfg, err
}

// shared reports whether the budgets are in Redis.
func (c *Command) shared() bool { return len(c.Redis.InitAddress) > 0 }

// routes returns the routes that the flags define. --limit defines the route for requests that
// match no other.
func (c *Command) routes() ([]proxy.Route, error) {
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

// address returns the Key that identifies clients by IP address.
func (c *Command) address() (httplimit.Key, error) {
	if len(c.Behind) == 0 {
		return httplimit.Clients{}.Key, nil
	}
	names := make([]string, len(c.Behind))
	for i, n := range c.Behind {
		names[i] = n.String()
	}
	clients, err := httplimit.ClientsBehind(names...)
	return clients.Key, err
}

// ports opens the ports for clients and operators.
func (c *Command) ports(ctx context.Context) (public, admin net.Listener, err error) {
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

// listen opens the port that the given flag names.
func (c *Command) listen(ctx context.Context, flag string, addr flags.Text, example string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", string(addr))
	if err != nil {
		return nil, fmt.Errorf("%s: %w; write an address of this machine with a free port, as in %s", flag, err, example)
	}
	return l, nil
}

// leadsTo reports whether a URL leads back to the listener. To find out, it opens a UDP socket,
// without sending anything, and compares the local and remote addresses.
func leadsTo(ctx context.Context, to *url.URL, listener net.Listener) bool {
	port := cmp.Or(to.Port(), map[string]string{"http": "80", "https": "443"}[to.Scheme])
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "udp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return false // there is no such server yet
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	own, far, near := listener.Addr().(*net.TCPAddr), conn.RemoteAddr().(*net.UDPAddr), conn.LocalAddr().(*net.UDPAddr)
	here := far.IP.IsLoopback() || far.IP.Equal(near.IP)
	return here && far.Port == own.Port && (own.IP.IsUnspecified() || own.IP.Equal(far.IP))
}

// logStart logs what is being limited, and any warnings about the flags.
func (c *Command) logStart(log *slog.Logger, admin net.Listener) {
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
			log.Warn("who is limited appears in plain text in the log, in /over and in Redis; --secret-file hides it", "route", rt.Pattern, "by", by)
		}
	}
	if len(c.Limits) == 0 {
		log.Warn("requests that match no route are not limited; --limit limits them too")
	}
	if !c.shared() {
		log.Warn("budgets are in the memory of this instance, and lost when it ends; each instance has its own, unless all use the same --redis")
	}
	if c.AllowReset && !page.OnLoopback(admin.Addr()) {
		log.Warn("anyone who can reach --admin can reset counts; restrict access to it", "admin", admin.Addr())
	}
	if c.Shadow {
		log.Warn("shadow: every request reaches the server; the log, /metrics and /over show what the limits would have done")
	}
}
