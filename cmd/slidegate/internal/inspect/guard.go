package inspect

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/connect"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/login"
)

// accountState is what a login guard counts for an account, and for an address if one is given, as
// --json prints it. Spans are in milliseconds.
type accountState struct {
	Guard   string    `json:"guard"`
	Account string    `json:"account"`
	Address string    `json:"address,omitempty"`
	Redis   string    `json:"redis"`
	At      time.Time `json:"at"`       // by the clock of Redis
	Known   bool      `json:"known"`    // a failure is counted on the account
	Default bool      `json:"defaults"` // the limits are those of the library
	Verdict
	Why     []reason       `json:"why"`     // one for each budget that denies
	Budgets []*budgetState `json:"budgets"` // in the order in which the guard asks them
}

// budgetState is the state of one budget.
type budgetState struct {
	Budget login.Budget `json:"budget"`
	*State
}

// reason says in words why a budget denies.
type reason struct {
	Budget     login.Budget `json:"budget"`
	Text       string       `json:"text"`
	Limit      string       `json:"limit"`
	RetryAfter int64        `json:"retry_after_ms"`

	section *section // of the limit
	event   string
}

// failures says which failures a budget counts.
var failures = map[login.Budget]string{
	login.Address: "from this address on any account",
	login.Pair:    "from this address on this account",
	login.Account: "on this account from unknown devices",
	login.Streak:  "by unknown devices since the last login",
	login.Total:   "on this account from all devices",
}

// guard returns the login guard whose Name the subject has.
func (s *Subject) guard(client rueidis.Client, bs flags.Budgets, now func() time.Time) (*login.Guard, error) {
	return login.New(client, login.Config{
		Name: s.Name, Secret: s.Secret, Now: now, Timeout: 5 * connect.Timeout,
		Address: bs.Of[login.Address], Pair: bs.Of[login.Pair], Account: bs.Of[login.Account],
		Streak: bs.Of[login.Streak], Total: bs.Of[login.Total],
	})
}

// accounts returns a function that asks a login guard for the state of the account that is the
// event of the subject. The zero address asks for none.
func (s *Subject) accounts(client rueidis.Client, bs flags.Budgets, ip netip.Addr, now func() time.Time) (func(context.Context) (*accountState, error), error) {
	g, err := s.guard(client, bs, now)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*accountState, error) {
		a, err := s.lookAtAccount(ctx, g, ip)
		if err == nil {
			a.Default = bs.Of == nil
		}
		return a, err
	}, nil
}

// lookAtAccount asks a guard once.
func (s *Subject) lookAtAccount(ctx context.Context, g *login.Guard, ip netip.Addr) (*accountState, error) {
	states, err := g.Inspect(ctx, s.Event, from(ip)...)
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	a := &accountState{Guard: s.Name, Account: s.Event, Redis: s.Redis.String(), Why: []reason{}}
	if ip.IsValid() {
		a.Address = ip.String()
	}
	for _, b := range states {
		a.add(s.budget(b))
	}
	a.Allowed = len(a.Why) == 0
	return a, nil
}

// from returns an address as the last arguments of Guard's methods: none if it is the zero one.
func from(ip netip.Addr) []netip.Addr {
	if !ip.IsValid() {
		return nil
	}
	return []netip.Addr{ip}
}

// budget returns the state that a guard reports of a budget.
func (s *Subject) budget(b login.State) *budgetState {
	of := *s
	of.Name, of.Event = s.Name+"."+string(b.Budget), b.Event
	st := of.windows(b.Snapshot)
	st.judge(st.counted())
	return &budgetState{b.Budget, st}
}

// add adds a budget, and why it denies if it does.
func (a *accountState) add(b *budgetState) {
	a.Budgets = append(a.Budgets, b)
	if b.At.After(a.At) {
		a.At = b.At
	}
	a.Known = a.Known || b.Stored && b.Budget != login.Address
	if !b.Allowed {
		a.Why = append(a.Why, b.reason())
		a.RetryAfter = max(a.RetryAfter, b.RetryAfter)
	}
}

// reason returns why the budget denies, by the limit that does for longest.
func (b *budgetState) reason() reason {
	sec := slices.MaxFunc(b.given(), func(a, b *section) int { return cmp.Compare(a.RetryAfter, b.RetryAfter) })
	text := fmt.Sprintf("%s within %s, %s", output.Count(int(sec.Used), "failure"), span(sec.per), failures[b.Budget])
	return reason{b.Budget, text, sec.Limit, sec.RetryAfter, sec, b.Event}
}

// status returns the exit status that the state stands for.
func (a *accountState) status() cli.ExitStatus {
	switch {
	case !a.Allowed:
		return statusDenied
	case !a.Known:
		return statusUnknown
	}
	return 0
}
