// Package inspect shows what a rate limiter or a login guard stores in Redis, as text, as JSON or
// on a live page. It can also reset it.
package inspect

import (
	"context"
	_ "embed" // for the help text
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

// Command represents "slidegate inspect" and its flags.
type Command struct {
	Subject
	Args struct {
		Name  flags.Argument `arg:"" optional:"" help:"The Name in the limiter's Config."`
		Event flags.Argument `arg:"" optional:"" help:"The event key, as the service passes it to Allow. Write -- before one that begins with a dash."`
	} `embed:""`
	IP    *string `arg:"" optional:"" help:"With --login: the IP address of the user."`
	Login bool    `help:"NAME is a login guard and EVENT an account: show all budgets of the account."`
	Guard
	Limits flags.Texts `name:"limit" placeholder:"MAX/PER" help:"A limit of the service, as in 5/1h; with it, inspect shows what is free. For several, repeat the flag or write 1/5s,5/1h. With --inflight: a Max."`
	JSON   bool        `name:"json" help:"Print the report as one JSON object."`

	Web        flags.PageAddress `placeholder:"[ADDR]" help:"Serve a live page at ADDR, until interrupted. Default: 127.0.0.1:8002."`
	AllowReset bool              `help:"The page can reset events."`
}

//go:embed help.txt
var help string

// Help returns the text of slidegate inspect --help.
func (Command) Help() string { return help }

// The exit statuses of inspect other than 0.
const (
	statusDenied  cli.ExitStatus = 3
	statusUnknown cli.ExitStatus = 4 // Redis stores nothing for the event
)

// result represents the state of an event or an account.
type result interface {
	head() string
	body(screen output.Screen, brief bool) string
	headline() string
	next() []string
	status() cli.ExitStatus
}

// Run shows the state of the event or account, or serves the page.
func (c *Command) Run(ctx context.Context, s cli.Streams) error {
	c.Name, c.Event = string(c.Args.Name), string(c.Args.Event)
	ip, err := c.check()
	if err != nil {
		return err
	}
	given, err := c.given()
	if err != nil {
		return err
	}
	client, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if c.Web != "" {
		return c.serve(ctx, client, s)
	}
	st, err := c.fetch(ctx, client, given, ip, s.Now)
	if err != nil {
		return err
	}
	return show(st, s, c.JSON)
}

// check returns the IP address given for an account, or the zero address. It returns an error if
// flags conflict.
func (c *Command) check() (ip netip.Addr, err error) {
	if err := c.checkWeb(); err != nil {
		return ip, err
	}
	if err := c.checkLogin(); err != nil || c.IP == nil {
		return ip, err
	}
	return parseIP(*c.IP)
}

// checkLogin returns an error if a flag conflicts with --login, or needs --login and that is
// missing.
func (c *Command) checkLogin() error {
	switch {
	case !c.Login && c.IP != nil:
		return cli.Unexpected(*c.IP)
	case !c.Login && c.Budgets.Of != nil:
		return errors.New("--budget applies only to a login guard; add --login, or write --limit")
	case !c.Login && c.Challenged:
		return errors.New("--challenged applies only to a login guard; add --login")
	case c.Login && len(c.Limits) > 0:
		return errors.New("--login and --limit cannot be combined: a login guard has limits for each budget; write --budget account=10/10m,20/1h")
	case c.Login && len(c.kinds()) > 0:
		return fmt.Errorf("--login and %s cannot be combined: a login guard counts by windows; leave out one of them", c.kinds()[0])
	case c.Login && len(c.Secret) == 0:
		return errors.New("--login needs --secret-file, because a login guard hides accounts in its keys; name the file that holds its Secret")
	}
	return c.checkBudgets()
}

// given returns the limits given with --limit.
func (c *Command) given() (flags.Limits, error) {
	if len(c.Limits) == 0 {
		return nil, nil
	}
	given, err := c.limits(strings.Join(c.Limits, ","))
	if err != nil {
		err = fmt.Errorf("--limit: %w", err)
	}
	return given, err
}

// parseIP parses an IP address in the same way as a login guard. It drops the zone, and unmaps an
// IPv4-mapped IPv6 address.
func parseIP(text string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return ip, fmt.Errorf("%q is not an IP address; write one, as in 198.51.100.7 or 2001:db8::7", text)
	}
	return ip.Unmap().WithZone(""), nil
}

// fetch reads the state of the event or account.
func (c *Command) fetch(ctx context.Context, client rueidis.Client, given flags.Limits, ip netip.Addr, now func() time.Time) (result, error) {
	if !c.Login {
		return c.fetchState(ctx, client, given, now)
	}
	fetch, err := c.accounts(client, c.Guard, ip, now)
	if err != nil {
		return nil, err
	}
	return fetch(ctx)
}

// show prints a state, and returns the exit status as an error.
func show(st result, s cli.Streams, json bool) (err error) {
	if json {
		err = output.JSON(s.Out, st)
	} else {
		screen := output.ScreenOf(s.Out)
		_, err = io.WriteString(s.Out, screen.Fit(2, func(rows int) string { return report(screen, st, rows == 1) }))
	}
	if err == nil && st.status() != 0 {
		return st.status()
	}
	return err
}

// report returns the full text for a state.
func report(screen output.Screen, st result, brief bool) string {
	var b strings.Builder
	b.WriteString(st.head())
	if body := st.body(screen, brief); body != "" {
		b.WriteString("\n" + body)
	}
	screen.End(&b, styledHeadline(screen, st), st.next()...)
	return b.String()
}

// styledHeadline returns the headline in the colour of its decision.
func styledHeadline(screen output.Screen, st result) string {
	switch st.status() {
	case statusDenied:
		return screen.Bad(st.headline())
	case statusUnknown:
		return screen.Warn(st.headline())
	}
	return st.headline()
}
