package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/redis/rueidis"

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
	*state
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

// budgets are the limits of all --budget flags. What is not given has the limits of the library.
type budgets struct{ given map[login.Budget]limits }

// Decode adds the limits of one flag.
func (bs *budgets) Decode(c *kong.DecodeContext) error {
	if isMissing(c) {
		return errors.New("its value is missing; write one, as in account=10/10m,20/1h")
	}
	return bs.add(c.Scan.Pop().String())
}

func (bs *budgets) add(text string) error {
	name, rest, found := strings.Cut(text, "=")
	b := login.Budget(name)
	switch _, known := failures[b]; {
	case !found || !known:
		names := slices.Sorted(maps.Keys(failures))
		return fmt.Errorf("%q names no budget; write one of %v with its limits, as in account=10/10m,20/1h", text, names)
	case bs.given[b] != nil:
		return fmt.Errorf("the budget %s is given twice; write its limits as one, as in %s=10/10m,20/1h", b, b)
	}
	var ls limits
	for limit := range strings.SplitSeq(rest, ",") {
		if err := ls.add(limit); err != nil {
			return err
		}
	}
	if bs.given == nil {
		bs.given = map[login.Budget]limits{}
	}
	bs.given[b] = ls
	return nil
}

// guard returns the login guard whose Name the subject has.
func (s *subject) guard(client rueidis.Client, bs budgets, now func() time.Time) (*login.Guard, error) {
	return login.New(client, login.Config{
		Name: string(s.Name), Secret: s.Secret, Now: now, Timeout: 5 * patience,
		Address: bs.given[login.Address], Pair: bs.given[login.Pair], Account: bs.given[login.Account],
		Streak: bs.given[login.Streak], Total: bs.given[login.Total],
	})
}

// accounts returns a function that asks a login guard for the state of the account that is the
// event of the subject. The zero address asks for none.
func (s *subject) accounts(client rueidis.Client, bs budgets, ip netip.Addr, now func() time.Time) (func(context.Context) (*accountState, error), error) {
	g, err := s.guard(client, bs, now)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*accountState, error) {
		a, err := s.lookAtAccount(ctx, g, ip)
		if err == nil {
			a.Default = bs.given == nil
		}
		return a, err
	}, nil
}

// lookAtAccount asks a guard once.
func (s *subject) lookAtAccount(ctx context.Context, g *login.Guard, ip netip.Addr) (*accountState, error) {
	states, err := g.Inspect(ctx, string(s.Event), from(ip)...)
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	a := &accountState{Guard: string(s.Name), Account: string(s.Event), Redis: s.Redis.String(), Why: []reason{}}
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
func (s *subject) budget(b login.State) *budgetState {
	of := *s
	of.Name, of.Event = s.Name+"."+raw(b.Budget), raw(b.Event)
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
	text := fmt.Sprintf("%s within %s, %s", number(int(sec.Used), "failure"), span(sec.per), failures[b.Budget])
	return reason{b.Budget, text, sec.Limit, sec.RetryAfter, sec, b.Event}
}

// status returns the exit status that the state stands for.
func (a *accountState) status() exitStatus {
	switch {
	case !a.Allowed:
		return statusDenied
	case !a.Known:
		return statusUnknown
	}
	return 0
}
