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
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/page"
	"github.com/slidegate/slidegate/window"
)

// checkWeb returns an error if a flag conflicts with --web, or needs --web and that is missing.
func (c *Command) checkWeb() error {
	switch {
	case c.Web == "" && c.Name == "":
		return errors.New(`expected "<name> <event>"` + cli.More)
	case c.Web == "" && c.Event == "":
		return errors.New(`expected "<event>"` + cli.More)
	case c.Web == "" && c.AllowReset:
		return errors.New("--allow-reset applies only to the page; add --web, or use slidegate reset")
	case c.Web != "" && c.JSON:
		return errors.New("--web and --json cannot be combined: the page has no JSON; leave out one of them")
	}
	return nil
}

// serve serves the page until ctx is done, and then returns nil.
func (c *Command) serve(ctx context.Context, client rueidis.Client, s cli.Streams) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", string(c.Web))
	if err != nil {
		return fmt.Errorf("--web: %w; write an address of this machine with a free port, as in %s", err, flags.DefaultPage)
	}
	if !page.OnLoopback(listener.Addr()) {
		_, _ = fmt.Fprintf(s.Err, "slidegate: anyone who can reach %v can see who is limited%s; restrict access to it\n", listener.Addr(), c.resetWarning())
	}
	_, _ = fmt.Fprintf(s.Out, "The page is at http://%v/%s until you interrupt this.\n", listener.Addr(), c.startQuery())
	server := &http.Server{Handler: page.New(c.page(client, s.Now)), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// resetWarning returns the end of the warning that is printed if the page has a Reset button.
func (c *Command) resetWarning() string {
	if c.AllowReset {
		return ", and can reset their counts"
	}
	return ""
}

// startQuery returns the query string of the page's URL. It says what to show first. Without an
// event, the page asks for one.
func (c *Command) startQuery() string {
	q := page.Query{Name: c.Name, Event: c.Event, Limits: strings.Join(c.Limits, ","), AR1: c.AR1, Pace: c.Pace, Inflight: c.Inflight, Login: c.Login}
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

// web serves the data for the page of inspect.
type web struct {
	Subject
	client  rueidis.Client
	guarded Guard
	now     func() time.Time
}

// subject returns the Subject that q names.
func (w *web) subject(q page.Query) *Subject {
	s := w.Subject
	s.Name, s.Event, s.AR1, s.Pace, s.Inflight = q.Name, q.Event, q.AR1, q.Pace, q.Inflight
	return &s
}

// open returns a function that reads the state of the event or account that q names.
func (w *web) open(q page.Query) (page.Poll, error) {
	switch {
	case q.Name == "":
		return nil, errors.New("the name of the limiter is missing; write the one that the service uses")
	case q.Login:
		return w.openAccount(q)
	}
	var given flags.Limits
	s := w.subject(q)
	if q.Limits != "" {
		var err error
		if given, err = s.limits(q.Limits); err != nil {
			return nil, err
		}
	}
	return s.newPoll(w.client, given, w.now)
}

// openAccount returns a function that reads the state of the account that q names.
func (w *web) openAccount(q page.Query) (page.Poll, error) {
	ip, err := queryAddress(q)
	if err != nil {
		return nil, err
	}
	fetch, err := w.subject(q).accounts(w.client, w.guarded, ip, w.now)
	return func(ctx context.Context) (any, error) {
		a, err := fetch(ctx)
		if err != nil {
			return nil, err
		}
		return newWebAccount(a), nil
	}, err
}

// queryAddress returns the IP address in q, or the zero address if there is none.
func queryAddress(q page.Query) (netip.Addr, error) {
	if q.Address == "" {
		return netip.Addr{}, nil
	}
	return parseIP(q.Address)
}

// webAccount represents the state of an account in the form sent to the page.
type webAccount struct {
	*accountState
	Budgets       []webBudget `json:"budgets"`
	ChallengeText string      `json:"challenge_text"` // empty without challenges
}

// webBudget represents the state of a budget in the form sent to the page.
type webBudget struct {
	*budgetState
	Shown string `json:"shown"` // the event in printable form
	Link  string `json:"link"`  // the query string of a page that shows only this event
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

// forget removes the counts of an event or, for an account, its failures and those of its pair with
// an IP address.
func (w *web) forget(ctx context.Context, q page.Query) error {
	s := w.subject(q)
	if !q.Login {
		return s.forget(ctx, w.client)
	}
	ip, err := queryAddress(q)
	if err != nil {
		return err
	}
	g, err := s.guard(w.client, w.guarded, w.now)
	if err != nil {
		return err
	}
	return s.userError(ctx, g.Forget(ctx, q.Event, optionalAddress(ip)...))
}

// State returns the state of the event under the limits of l, with one call to Redis.
func (s *Subject) State(ctx context.Context, l *window.Limiter) (*State, error) {
	return s.pollState(ctx, l, true)
}

// pollState returns the state of the event under the limits of l, with one call to Redis. If given
// is false, it uses the limits that Redis stores.
func (s *Subject) pollState(ctx context.Context, l limiter, given bool) (*State, error) {
	st, err := s.ask(ctx, l)
	if err != nil {
		return nil, s.userError(ctx, err)
	}
	if !given {
		st.dropPlaceholders()
		st.At = st.attemptTime()
	}
	st.decide(st.countingSections())
	return st, nil
}
