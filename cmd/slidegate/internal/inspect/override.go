package inspect

import (
	"context"
	_ "embed" // for the help text
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/connect"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/window"
)

// Override represents "slidegate override" and its flags.
type Override struct {
	Server
	Secret flags.Secret `name:"secret-file" placeholder:"FILE" help:"A file with the Secret of a limiter that hides events in its keys."`
	Args   struct {
		Name  flags.Argument `arg:"" help:"The Name in the limiter's Config."`
		Event flags.Argument `arg:"" help:"The event key, as the service passes it to Allow. Write -- before one that begins with a dash."`
	} `embed:""`
	Limits    flags.Limits `name:"limit" placeholder:"MAX/PER" help:"A limit that replaces all limits of the event, such as 100/1m. For several, repeat the flag or write 5/1s,100/1m."`
	Block     bool         `help:"Deny all attempts on the event."`
	Unlimited bool         `help:"Allow all attempts on the event, and count nothing."`
	End       bool         `help:"Remove the override of the event."`
	For       flags.For    `placeholder:"24h" help:"How long the override lasts, from 1s to 366d."`
	Why       flags.Short  `placeholder:"TEXT" help:"The reason, for anyone who finds the override later."`
	By        flags.Author `placeholder:"NAME" help:"Who sets the override. Default: $USER."`
}

//go:embed override-help.txt
var overrideHelp string

// Help returns the text of slidegate override --help.
func (Override) Help() string { return overrideHelp }

// Run sets or ends the override of the event.
func (c *Override) Run(ctx context.Context, s cli.Streams) error {
	o, err := c.override()
	if err != nil {
		return err
	}
	of := c.subject(c.Args.Name, c.Args.Event, c.Secret)
	client, err := of.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	l, err := of.overridden(client, s.Now)
	switch {
	case err != nil:
		return err
	case c.End:
		return of.endOverride(ctx, l, s)
	}
	if err := l.Override(ctx, of.Event, o, time.Duration(c.For)); err != nil {
		return of.userError(ctx, err)
	}
	return of.showOverride(ctx, l, s)
}

// override returns the override that the flags specify.
func (c *Override) override() (o window.Override, err error) {
	o = window.Override{Mode: window.OverrideLimits, Limits: c.Limits, Why: string(c.Why), By: string(c.By.OrUser())}
	var given []string
	for _, of := range []struct {
		flag string
		is   bool
		mode window.OverrideMode
	}{
		{"--limit", len(c.Limits) > 0, o.Mode},
		{"--block", c.Block, window.OverrideBlock},
		{"--unlimited", c.Unlimited, window.OverrideUnlimited},
		{"--end", c.End, ""},
	} {
		if of.is {
			given, o.Mode = append(given, of.flag), of.mode
		}
	}
	switch {
	case len(given) == 0:
		return o, errors.New("it does not say what to do; write --limit 100/1m, --block, --unlimited or --end")
	case len(given) > 1:
		return o, fmt.Errorf("%s and %s cannot be combined: an override does one thing; leave out one of them", given[0], given[1])
	case c.End && (c.For != 0 || c.Why != ""):
		return o, errors.New("--end takes effect at once, and stores nothing; leave out --for and --why")
	case !c.End && c.For == 0:
		return o, errors.New("it does not say for how long; write --for 24h")
	case !c.End && c.Why == "":
		return o, errors.New(`it does not say why; write --why "ticket 4711", for anyone who finds the override later`)
	}
	for _, l := range c.Limits {
		if l.Resolution != 0 {
			return o, fmt.Errorf("--limit: %v has a resolution, which an override does not support; leave out the @", l)
		}
	}
	return o, nil
}

// overridden returns a limiter that supports overrides.
func (s *Subject) overridden(client rueidis.Client, now func() time.Time) (*window.Limiter, error) {
	return window.New(window.On(client), window.Config{
		Name: s.Name, Limits: placeholderLimits, Secret: s.Secret, Now: now, Timeout: connect.Timeout, Overrides: true,
	})
}

// endOverride removes the override of the event.
func (s *Subject) endOverride(ctx context.Context, l *window.Limiter, out cli.Streams) error {
	ended, err := l.EndOverride(ctx, s.Event)
	if err != nil {
		return s.userError(ctx, err)
	}
	screen, text := output.ScreenOf(out.Out), "Ended.\n"
	if !ended {
		text = fmt.Sprintf("There is no override for %s in %s on %s.%s", logs.Shown(s.Event), s.Name, s.Redis.String(), s.hashHint())
		text = screen.Wrap(text) + "\n"
	}
	if _, err = io.WriteString(out.Out, text); err == nil && !ended {
		return statusUnknown
	}
	return err
}

// hashHint returns what to do if the event is a hash from the list of overrides.
func (s *Subject) hashHint() string {
	if strings.HasPrefix(s.Event, "~") {
		return " If that is a hash, write the event itself, and --secret-file if the limiter has a Secret."
	}
	return ""
}

// networkHint returns what to do if the event is a single IPv6 address, which middleware never
// counts.
func networkHint(event string) string {
	address, err := netip.ParseAddr(event)
	if err != nil {
		return ""
	}
	network := keys.ClientNetwork(address)
	if network == address.String() {
		return ""
	}
	return fmt.Sprintf("Middleware and the login guard limit the network of this address: %s.", network)
}

// showOverride prints the override that has just been set.
func (s *Subject) showOverride(ctx context.Context, l *window.Limiter, out cli.Streams) error {
	o, err := s.overrideOf(ctx, l)
	if err != nil || o == nil {
		return err
	}
	screen := output.ScreenOf(out.Out)
	var b strings.Builder
	until := roundUp(o.Until).Format(time.DateTime)
	b.WriteString(screen.Wrap(fmt.Sprintf("%s in %s on %s: %s until %s UTC.", logs.Shown(s.Event), s.Name, s.Redis.String(), does(o), until)) + "\n")
	b.WriteString(screen.Wrap("Limiters with Overrides notice within 5s, when they decide.") + "\n")
	if hint := networkHint(s.Event); hint != "" {
		b.WriteString(screen.Wrap(hint) + "\n")
	}
	if event, ok := shellWord(s.Event); ok {
		b.WriteString(screen.Command("next: slidegate", slices.Concat([]string{"override", "--end"}, s.flags(), words(s.Name), []string{event})) + "\n")
	}
	_, err = io.WriteString(out.Out, b.String())
	return err
}

// overrideOf returns the override of the event, or nil.
func (s *Subject) overrideOf(ctx context.Context, l *window.Limiter) (*window.Override, error) {
	all, err := l.Overrides(ctx)
	if err != nil {
		return nil, s.userError(ctx, err)
	}
	for i := range all {
		if all[i].Tag == keys.Tag(s.Secret, s.Event) {
			return &all[i], nil
		}
	}
	return nil, nil
}

// does describes the effect of an override.
func does(o *window.Override) string {
	if o.Mode != window.OverrideLimits {
		return string(o.Mode)
	}
	var limits []string
	for _, l := range o.Limits {
		limits = append(limits, l.Label())
	}
	return strings.Join(limits, ",")
}

// addOverride reads the override of the event, if the limiter is a window.Limiter. The override's
// limits replace the given limits. If there is an error, addOverride returns the given limits with
// it: inspect shows the error, and everything else.
func (s *Subject) addOverride(ctx context.Context, client rueidis.Client, given flags.Limits, now func() time.Time) (*overrideState, flags.Limits, error) {
	if len(s.kinds()) > 0 {
		return nil, given, nil
	}
	l, err := s.overridden(client, now)
	if err != nil {
		return nil, given, err
	}
	o, err := s.overrideOf(ctx, l)
	if err != nil || o == nil {
		return nil, given, err
	}
	st := newOverrideState(o)
	if o.Mode == window.OverrideLimits {
		given = o.Limits
	}
	return &st, given, nil
}

// setOverride adds the override of the event, or the error that prevented reading it, and applies
// the override.
func (st *State) setOverride(o *overrideState, unread error) {
	if st.Override = o; unread != nil {
		st.OverrideError = unread.Error()
	}
	st.overrule()
}

// overrideText describes the override of the event, or says why it could not be read. It returns ""
// if there is none.
func (st *State) overrideText() string {
	switch {
	case st.OverrideError != "":
		return "could not be read: " + st.OverrideError
	case st.Override == nil:
		return ""
	}
	return st.Override.text(st.At)
}

// overrule applies the override if it blocks the event or makes it unlimited. Under its limits, the
// wait is at most the time until it ends.
func (st *State) overrule() {
	if st.Override == nil {
		return
	}
	left := max(1, st.Override.Until.Sub(st.At).Milliseconds()) // the clocks of masters differ
	switch {
	case st.Override.Mode == string(window.OverrideBlock):
		st.Decision = &Decision{RetryAfter: left}
	case st.Override.Mode == string(window.OverrideUnlimited):
		st.Decision = &Decision{Allowed: true}
	case st.Decision != nil:
		st.RetryAfter = min(st.RetryAfter, left)
	}
}

// isFixed reports whether an override decides in place of the limits.
func (st *State) isFixed() bool {
	return st.Override != nil && st.Override.Mode != string(window.OverrideLimits)
}

// overruled returns a sentence that states what the override decides.
func (st *State) overruled() string {
	if st.Allowed {
		return "ALLOWED without limits, by an override"
	}
	return "DENIED by an override; it ends " + formatIn(st.RetryAfter, st.At)
}

// text describes an override: its effect, its end, who set it, and why.
func (o *overrideState) text(now time.Time) string {
	text := o.does + " until " + formatTime(roundUp(o.Until), now)
	if o.By != "" {
		text += ", by " + logs.Shown(o.By)
	}
	return text + ": " + logs.Shown(o.Why)
}
