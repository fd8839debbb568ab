package inspect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/estimator"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/page"
	"github.com/slidegate/slidegate/window"
)

// checkWeb refuses what does not go with a page, and without one what needs it.
func (c *Command) checkWeb() error {
	const more = "; slidegate help inspect shows what there is"
	switch {
	case c.Web == "" && c.Name == "":
		return errors.New(`expected "<name> <event>"` + more)
	case c.Web == "" && c.Event == "":
		return errors.New(`expected "<event>"` + more)
	case c.Web == "" && c.AllowReset:
		return errors.New("--allow-reset is about the page; add --web, or use slidegate reset")
	case c.Web != "" && (c.JSON || c.Watch || c.Every > 0):
		return errors.New("--web does not go together with --json, --watch and --every, which are for a terminal; leave them out")
	}
	return nil
}

// serve serves the page until ctx ends, which is no error.
func (c *Command) serve(ctx context.Context, client rueidis.Client, s cli.Streams) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", string(c.Web))
	if err != nil {
		return fmt.Errorf("--web: %w; write an address of this machine with a free port, as in %s", err, flags.DefaultPage)
	}
	if !page.OnLoopback(listener.Addr()) {
		_, _ = fmt.Fprintf(s.Err, "slidegate: everybody who reaches %v sees who is limited%s; keep others away from it\n", listener.Addr(), c.more())
	}
	_, _ = fmt.Fprintf(s.Out, "The page is at http://%v/%s until you interrupt this.\n", listener.Addr(), c.begin())
	server := &http.Server{Handler: page.New(c.page(client, s.Now)), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// more returns what else everybody can do who reaches the page.
func (c *Command) more() string {
	if c.AllowReset {
		return ", and can have it forgotten"
	}
	return ""
}

// begin returns what the page shows first, as the end of its address. Without an event, it asks for
// one.
func (c *Command) begin() string {
	q := page.Query{Name: c.Name, Event: c.Event, Limits: strings.Join(c.Limits.Texts(), ","), Levels: c.AR1, Login: c.Login}
	if c.IP != nil {
		q.Address = *c.IP
	}
	if q == (page.Query{}) {
		return ""
	}
	return "?" + q.Encode()
}

// page returns the configuration of the page.
func (c *Command) page(client rueidis.Client, now func() time.Time) page.Config {
	w := &web{Subject: c.Subject, client: client, guarded: c.Guard, now: now}
	cfg := page.Config{Title: "slidegate inspect", Named: true, Accounts: len(c.Secret) > 0, Challenged: c.Challenged, Open: w.open}
	if c.AllowReset {
		cfg.Forget = w.forget
	}
	return cfg
}

// web answers the page of inspect.
type web struct {
	Subject
	client  rueidis.Client
	guarded Guard
	now     func() time.Time
}

// of returns the subject that the page asks about.
func (w *web) of(q page.Query) *Subject {
	s := w.Subject
	s.Name, s.Event, s.AR1 = q.Name, q.Event, q.Levels
	return &s
}

// open prepares to look at an event or an account.
func (w *web) open(q page.Query) (page.Look, error) {
	switch {
	case q.Name == "":
		return nil, errors.New("the name of the limiter is missing; write the one that the service uses")
	case q.Login:
		return w.openAccount(q)
	}
	var given flags.Limits
	if q.Limits != "" {
		var err error
		if given, err = flags.ParseLimits(q.Limits); err != nil {
			return nil, err
		}
	}
	s := w.of(q)
	return s.glances(w.client, given, w.now)
}

// openAccount prepares to look at an account of a login guard.
func (w *web) openAccount(q page.Query) (page.Look, error) {
	ip, err := addressOf(q)
	if err != nil {
		return nil, err
	}
	look, err := w.of(q).accounts(w.client, w.guarded, ip, w.now)
	return func(ctx context.Context) (any, error) {
		a, err := look(ctx)
		if err != nil {
			return nil, err
		}
		return newWebAccount(a), nil
	}, err
}

// addressOf returns the address that an account is used from, or the zero one.
func addressOf(q page.Query) (netip.Addr, error) {
	if q.Address == "" {
		return netip.Addr{}, nil
	}
	return parseIP(q.Address)
}

// webAccount is the state of an account as the page gets it.
type webAccount struct {
	*accountState
	Budgets       []webBudget `json:"budgets"`
	ChallengeText string      `json:"challenge_text"` // empty without challenges
}

// webBudget is the state of a budget as the page gets it.
type webBudget struct {
	*budgetState
	Shown string `json:"shown"` // the event as it can be printed
	Link  string `json:"link"`  // what the page asks for to show the event alone
}

func newWebAccount(a *accountState) webAccount {
	budgets := make([]webBudget, len(a.Budgets))
	for i, b := range a.Budgets {
		var limits []string
		for _, sec := range b.given() {
			limits = append(limits, sec.Limit)
		}
		q := page.Query{Name: b.Limiter, Event: b.Event, Limits: strings.Join(limits, ",")}
		budgets[i] = webBudget{b, logs.Shown(b.Event), q.Encode()}
	}
	return webAccount{a, budgets, a.challengeText()}
}

// forget forgets an event, or the failures on an account and of its pair.
func (w *web) forget(ctx context.Context, q page.Query) error {
	s := w.of(q)
	if !q.Login {
		return s.forget(ctx, w.client)
	}
	ip, err := addressOf(q)
	if err != nil {
		return err
	}
	g, err := s.guard(w.client, w.guarded, w.now)
	if err != nil {
		return err
	}
	return s.failed(ctx, g.Forget(ctx, q.Event, from(ip)...))
}

// glances returns a function that looks at the event with one call of Redis each time.
func (s *Subject) glances(client rueidis.Client, given flags.Limits, now func() time.Time) (page.Look, error) {
	under := given
	if len(given) == 0 {
		under = anyLimits
	}
	l, err := s.limiter(client, under, now)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (any, error) { return s.glance(ctx, l, len(given) > 0) }, nil
}

// State returns the state of the event under the limits of l, by one call of Redis.
func (s *Subject) State(ctx context.Context, l *window.Limiter) (*State, error) {
	return s.glance(ctx, l, true)
}

// glance returns the state of the event under the limits of l, or under what is stored if these are
// not given.
func (s *Subject) glance(ctx context.Context, l estimator.Limiter, given bool) (*State, error) {
	st, err := s.ask(ctx, l)
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	if !given {
		st.Limits = st.Limits[len(anyLimits):]
		st.At = st.date()
	}
	st.judge(st.counted())
	return st, nil
}
