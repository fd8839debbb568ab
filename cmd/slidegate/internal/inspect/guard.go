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
	"github.com/slidegate/slidegate/window"
)

// accountState represents what a login guard knows about an account and, if one is given, an IP
// address. --json prints it. Durations are in milliseconds.
type accountState struct {
	Guard   string    `json:"guard"`
	Account string    `json:"account"`
	Address string    `json:"address,omitempty"`
	Redis   string    `json:"redis"`
	At      time.Time `json:"at"`       // by the Redis clock
	Known   bool      `json:"known"`    // the guard has counted at least one failure for the account
	Default bool      `json:"defaults"` // the limits are the defaults of package login
	Decision
	Why       []reason       `json:"why"`                 // one reason per budget that denies an attempt without a challenge
	Challenge *bool          `json:"challenge,omitempty"` // whether a challenged attempt is allowed; nil without challenges
	Budgets   []*budgetState `json:"budgets"`             // in the order in which the guard checks them
}

// budgetState represents the state of a budget.
type budgetState struct {
	Budget login.Budget `json:"budget"`
	*State
}

// reason explains why a budget denies.
type reason struct {
	Budget     login.Budget `json:"budget"`
	Text       string       `json:"text"`
	Limit      string       `json:"limit"`
	RetryAfter int64        `json:"retry_after_ms"`

	section *section // the state of the limit that denies
}

// failures describes, for each budget of unchallenged attempts, which failures it counts.
var failures = map[login.Budget]string{
	login.BudgetAddress: "from this address on any account",
	login.BudgetPair:    "from this address on this account",
	login.BudgetAccount: "on this account from unknown devices",
	login.BudgetStreak:  "by unknown devices since the last login",
	login.BudgetTotal:   "on this account from all devices",
}

// Guard is the configuration of a login guard, as given by flags.
type Guard struct {
	Budgets    flags.Budgets `name:"budget" placeholder:"NAME=LIMITS" help:"With --login: the limits of a budget, if they differ from the defaults, as in account=10/10m,20/1h."`
	Challenged bool          `help:"With --login: the service uses challenges. Also show their budgets."`
}

// checkBudgets returns an error if there are limits for challenged attempts but the guard has no
// challenges.
func (of Guard) checkBudgets() error {
	for _, b := range slices.Sorted(maps.Keys(of.Budgets.Of)) {
		if challenged(b) && !of.Challenged {
			return fmt.Errorf("--budget %s applies only to challenged attempts; add --challenged", b)
		}
	}
	return nil
}

// challenged reports whether a budget counts only challenged attempts.
func challenged(b login.Budget) bool { return strings.HasPrefix(string(b), "challenged-") }

// guard returns the login guard that s names.
func (s *Subject) guard(client rueidis.Client, of Guard, now func() time.Time) (*login.Guard, error) {
	bs := of.Budgets.Of
	cfg := login.Config{
		Name: s.Name, Secret: s.Secret, Now: now, Timeout: 5 * connect.Timeout,
		Address: bs[login.BudgetAddress], Pair: bs[login.BudgetPair], Account: bs[login.BudgetAccount],
		Streak: bs[login.BudgetStreak], Total: bs[login.BudgetTotal],
	}
	if of.Challenged {
		cfg.Challenged = &login.Challenged{
			Address: bs[login.BudgetChallengedAddress], Pair: bs[login.BudgetChallengedPair],
			Account: bs[login.BudgetChallengedAccount], Streak: bs[login.BudgetChallengedStreak],
		}
	}
	return login.New(window.On(client), cfg)
}

// accounts returns a function that reads the state of an account from a login guard. The account is
// the event of s. If ip is the zero address, the budgets that depend on an IP address are left out.
func (s *Subject) accounts(client rueidis.Client, of Guard, ip netip.Addr, now func() time.Time) (func(context.Context) (*accountState, error), error) {
	g, err := s.guard(client, of, now)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*accountState, error) {
		a, err := s.fetchAccount(ctx, g, ip)
		if err != nil {
			return nil, err
		}
		a.Default = of.Budgets.Of == nil
		if of.Challenged {
			allowed := len(a.denyChallenged()) == 0
			a.Challenge = &allowed
		}
		return a, nil
	}, nil
}

// fetchAccount reads the account's state with one call to Guard.Inspect.
func (s *Subject) fetchAccount(ctx context.Context, g *login.Guard, ip netip.Addr) (*accountState, error) {
	states, err := g.Inspect(ctx, s.Event, optionalAddress(ip)...)
	if err != nil {
		return nil, s.userError(ctx, err)
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

// optionalAddress returns ip as the trailing arguments of Guard's methods: none if ip is the zero
// address.
func optionalAddress(ip netip.Addr) []netip.Addr {
	if !ip.IsValid() {
		return nil
	}
	return []netip.Addr{ip}
}

// budget converts the state of a budget, as the guard reports it.
func (s *Subject) budget(b login.BudgetState) *budgetState {
	of := *s
	of.Name, of.Event = s.Name+"."+string(b.Budget), b.Event
	st := of.windowState(b.Snapshot)
	st.decide(st.countingSections())
	return &budgetState{b.Budget, st}
}

// add adds a budget. If the budget denies an unchallenged attempt, add also appends the reason to
// Why.
func (a *accountState) add(b *budgetState) {
	a.Budgets = append(a.Budgets, b)
	if b.At.After(a.At) {
		a.At = b.At
	}
	a.Known = a.Known || b.Stored && b.Budget != login.BudgetAddress && b.Budget != login.BudgetChallengedAddress
	if !b.Allowed && !challenged(b.Budget) {
		a.Why = append(a.Why, b.reason())
		a.RetryAfter = max(a.RetryAfter, b.RetryAfter)
	}
}

// denyChallenged returns the budgets that deny a challenged attempt.
func (a *accountState) denyChallenged() (budgets []*budgetState) {
	for _, b := range a.Budgets {
		if !b.Allowed && (challenged(b.Budget) || b.Budget == login.BudgetTotal) {
			budgets = append(budgets, b)
		}
	}
	return budgets
}

// tightest returns the limit that denies for the longest time. If none denies, it returns the limit
// with the fewest free units. Ties go to the limit with the most units used.
func (b *budgetState) tightest() *section {
	return slices.MaxFunc(b.given(), func(a, b *section) int {
		return cmp.Or(cmp.Compare(a.RetryAfter, b.RetryAfter), cmp.Compare(b.Remaining, a.Remaining), cmp.Compare(a.Used, b.Used))
	})
}

// reason explains why the budget denies. It refers to the limit that denies for the longest time.
func (b *budgetState) reason() reason {
	sec := b.tightest()
	text := fmt.Sprintf("%s within %s, %s", output.Count(int(sec.Used), "failure"), formatDuration(sec.per), failures[b.Budget])
	return reason{b.Budget, text, sec.Limit, sec.RetryAfter, sec}
}

// status returns the exit status for the state.
func (a *accountState) status() cli.ExitStatus {
	switch {
	case !a.Allowed:
		return statusDenied
	case !a.Known:
		return statusUnknown
	}
	return 0
}
