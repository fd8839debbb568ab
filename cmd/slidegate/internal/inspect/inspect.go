// Package inspect shows what a limiter or a login guard counts in Redis, as text, as JSON or on a live
// page, and forgets it.
package inspect

import (
	"context"
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

// Command is a look as the flags of slidegate inspect describe it.
type Command struct {
	Subject
	Guard                 // with Login
	IP     *string        // with Login: where the account is used from; nil: not named
	Login  bool           // Name is that of a login guard, and Event an account
	Limits flags.Limits   // of the service; without, it is not known what is free
	JSON   bool           // print JSON instead of text
	Watch  bool           // look again every second
	Every  flags.Interval // look again so often

	Web        flags.PageAddress // serve a page there instead; then Name and Event are optional
	AllowReset bool              // the page can forget what is counted
}

// The answers of inspect.
const (
	statusDenied  cli.ExitStatus = 3
	statusUnknown cli.ExitStatus = 4 // nothing is known of the event
)

// shown is what an inspect shows: the state of an event, or of an account.
type shown interface {
	head() string
	body(screen output.Screen, brief bool) string
	verdict() string
	next() []string
	status() cli.ExitStatus
}

// Run shows the state of the event, once or again and again.
func (c *Command) Run(ctx context.Context, s cli.Streams) error {
	ip, err := c.check()
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
	if c.Watch && c.Every == 0 {
		c.Every = flags.Interval(time.Second)
	}
	look, err := c.looks(client, ip, s.Now)
	if err != nil {
		return err
	}
	if c.Every > 0 {
		return c.watch(ctx, look, s)
	}
	answer, err := c.show(ctx, look, s)
	if err == nil && answer != 0 {
		return answer
	}
	return err
}

// check refuses what does not go together. It returns the address of an account, or the zero one.
func (c *Command) check() (ip netip.Addr, err error) {
	if err := c.checkWeb(); err != nil {
		return ip, err
	}
	if err := c.checkLogin(); err != nil || c.IP == nil {
		return ip, err
	}
	return parseIP(*c.IP)
}

// checkLogin refuses what does not go together with a login guard, and without one what needs it.
func (c *Command) checkLogin() error {
	switch {
	case !c.Login && c.IP != nil:
		return fmt.Errorf("%s; slidegate help inspect shows what there is", cli.Unexpected(*c.IP))
	case !c.Login && c.Budgets.Of != nil:
		return errors.New("--budget is about a login guard; add --login, or write --limit")
	case !c.Login && c.Challenged:
		return errors.New("--challenged is about a login guard; add --login")
	case c.Login && len(c.Limits) > 0:
		return errors.New("--login and --limit do not go together: a login guard has limits for each budget; write --budget account=10/10m,20/1h")
	case c.Login && c.AR1:
		return errors.New("--login and --ar1 do not go together: a login guard counts by windows; leave out one of them")
	case c.Login && len(c.Secret) == 0:
		return errors.New("--login needs --secret-file, as a login guard hides accounts in its keys; name the file that holds its Secret")
	}
	return c.checkBudgets()
}

// parseIP reads an address as a login guard takes it: without a zone, and no IPv4 one as IPv6.
func parseIP(text string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return ip, fmt.Errorf("%q is no IP address; write one as in 198.51.100.7 or 2001:db8::7", text)
	}
	return ip.Unmap().WithZone(""), nil
}

// looks returns the function that asks for the state.
func (c *Command) looks(client rueidis.Client, ip netip.Addr, now func() time.Time) (func(context.Context) (shown, error), error) {
	if !c.Login {
		return func(ctx context.Context) (shown, error) { return c.look(ctx, client, c.Limits, now) }, nil
	}
	look, err := c.accounts(client, c.Guard, ip, now)
	return func(ctx context.Context) (shown, error) { return look(ctx) }, err
}

// show prints the state once, and returns the exit status that it stands for.
func (c *Command) show(ctx context.Context, look func(context.Context) (shown, error), s cli.Streams) (cli.ExitStatus, error) {
	st, err := look(ctx)
	if err != nil {
		return 0, err
	}
	if c.JSON {
		return st.status(), output.JSON(s.Out, st)
	}
	screen := output.ScreenOf(s.Out)
	_, err = io.WriteString(s.Out, screen.Fit(2, func(rows int) string { return report(screen, st, rows == 1) }))
	return st.status(), err
}

// report returns all that is shown of a state.
func report(screen output.Screen, st shown, brief bool) string {
	var b strings.Builder
	b.WriteString(st.head() + "\n" + st.body(screen, brief))
	screen.End(&b, judged(screen, st), st.next()...)
	return b.String()
}

// judged returns the verdict in its colour.
func judged(screen output.Screen, st shown) string {
	switch st.status() {
	case statusDenied:
		return screen.Bad(st.verdict())
	case statusUnknown:
		return screen.Warn(st.verdict())
	}
	return st.verdict()
}
