package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
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
	Why       []reason       `json:"why"`                 // one for each budget that denies an attempt without a challenge
	Challenge *bool          `json:"challenge,omitempty"` // an attempt with a challenge is allowed; nil without challenges
	Budgets   []*budgetState `json:"budgets"`             // in the order in which the guard asks them
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
}

// failures says which failures a budget of attempts without a challenge counts.
var failures = map[login.Budget]string{
	login.Address: "from this address on any account",
	login.Pair:    "from this address on this account",
	login.Account: "on this account from unknown devices",
	login.Streak:  "by unknown devices since the last login",
	login.Total:   "on this account from all devices",
}

// Guard is what the flags say about a login guard.
type Guard struct {
	Budgets    flags.Budgets // its limits, if they are not the defaults
	Challenged bool          // it has challenges
}

// checkBudgets refuses limits of challenged attempts for a guard without challenges.
func (of Guard) checkBudgets() error {
	for _, b := range slices.Sorted(maps.Keys(of.Budgets.Of)) {
		if challenged(b) && !of.Challenged {
			return fmt.Errorf("--budget %s is about attempts with a challenge; add --challenged", b)
		}
	}
	return nil
}

// challenged reports whether a budget counts attempts with a challenge alone.
func challenged(b login.Budget) bool { return strings.HasPrefix(string(b), "challenged-") }

// guard returns the login guard whose Name the subject has.
func (s *Subject) guard(client rueidis.Client, of Guard, now func() time.Time) (*login.Guard, error) {
	bs := of.Budgets.Of
	cfg := login.Config{
		Name: s.Name, Secret: s.Secret, Now: now, Timeout: 5 * connect.Timeout,
		Address: bs[login.Address], Pair: bs[login.Pair], Account: bs[login.Account],
		Streak: bs[login.Streak], Total: bs[login.Total],
	}
	if of.Challenged {
		cfg.Challenged = &login.Challenged{
			Address: bs[login.ChallengedAddress], Pair: bs[login.ChallengedPair],
			Account: bs[login.ChallengedAccount], Streak: bs[login.ChallengedStreak],
		}
	}
	return login.New(client, cfg)
}

// accounts returns a function that asks a login guard for the state of the account that is the
// event of the subject. The zero address asks for none.
func (s *Subject) accounts(client rueidis.Client, of Guard, ip netip.Addr, now func() time.Time) (func(context.Context) (*accountState, error), error) {
	g, err := s.guard(client, of, now)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*accountState, error) {
		a, err := s.lookAtAccount(ctx, g, ip)
		if err != nil {
			return nil, err
		}
		a.Default = of.Budgets.Of == nil
		if of.Challenged {
			admits := len(a.denyChallenged()) == 0
			a.Challenge = &admits
		}
		return a, nil
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

// add adds a budget, and why it denies an attempt without a challenge if it does.
func (a *accountState) add(b *budgetState) {
	a.Budgets = append(a.Budgets, b)
	if b.At.After(a.At) {
		a.At = b.At
	}
	a.Known = a.Known || b.Stored && b.Budget != login.Address && b.Budget != login.ChallengedAddress
	if !b.Allowed && !challenged(b.Budget) {
		a.Why = append(a.Why, b.reason())
		a.RetryAfter = max(a.RetryAfter, b.RetryAfter)
	}
}

// denyChallenged returns the budgets that deny an attempt with a challenge.
func (a *accountState) denyChallenged() (budgets []*budgetState) {
	for _, b := range a.Budgets {
		if !b.Allowed && (challenged(b.Budget) || b.Budget == login.Total) {
			budgets = append(budgets, b)
		}
	}
	return budgets
}

// tightest returns the limit that denies for longest, or else the one that has the least free. Of
// equals it is the one most used.
func (b *budgetState) tightest() *section {
	return slices.MaxFunc(b.given(), func(a, b *section) int {
		return cmp.Or(cmp.Compare(a.RetryAfter, b.RetryAfter), cmp.Compare(b.Remaining, a.Remaining), cmp.Compare(a.Used, b.Used))
	})
}

// reason returns why the budget denies, by the limit that does for longest.
func (b *budgetState) reason() reason {
	sec := b.tightest()
	text := fmt.Sprintf("%s within %s, %s", output.Count(int(sec.Used), "failure"), span(sec.per), failures[b.Budget])
	return reason{b.Budget, text, sec.Limit, sec.RetryAfter, sec}
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
