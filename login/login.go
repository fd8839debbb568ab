// Package login provides login throttling: it protects a login form against brute force and
// credential stuffing. It is a distributed rate limiter for anything that users type to prove who
// they are: passwords, PINs, one-time codes. It keeps its counts in Redis, in Redis Cluster, or in
// memory.
//
// A [Guard] charges each attempt before the password is checked. It charges the IP address, the
// pair of address and account, and the account. If the password is wrong, the charges stay; if it
// is right, they are given back. A thousand simultaneous guesses therefore get no further than a
// thousand sequential ones. A botnet, with any number of addresses, can make at most 100 wrong
// guesses an hour on one account.
//
//	conn := window.Dial("redis://127.0.0.1:6379")
//	guard, err := login.New(conn, login.Config{Name: "login", Secret: secret})
//	...
//	a, err := guard.Begin(ctx, account, ip)
//	switch {
//	case err != nil: // Redis cannot answer: let nobody in, or set Config.Fallback
//	case !a.Allowed: // respond with HTTP 429 and a.RetryAfter, and do not check the password
//	case right(account, password): // let the user in
//		err = a.Succeed(ctx)
//	default: // the password is wrong: the charges stay
//	}
//
// [Guard.BeginKnown] keeps an account open for its owner during an attack: a device that has logged
// in before has its own budget. [Guard.BeginChallenged] allows attempts of clients that have solved
// a captcha.
//
// Package [github.com/slidegate/slidegate/login/loginhttp] is a complete login form for net/http.
// The defaults, their sources, and simulated attacks are described in
// https://github.com/slidegate/slidegate/blob/main/docs/login.md.
package login

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/window"
)

// Guard decides which login attempts are allowed. Create one with New or NewLocal. It is safe for
// concurrent use, and needs no Close.
type Guard struct {
	name      string
	budgets   []*budget  // in the order of the table
	alarm     *siteAlarm // nil without challenges
	inMemory  bool
	noTimeout bool // Config.Timeout is negative: only the context ends calls
}

// These errors can be distinguished with errors.Is. In an outage of Redis, errors match
// window.ErrOutage or window.ErrUncertain.
var (
	// ErrEmptyAccount is returned for the account "", which all users who have no account name
	// would share.
	ErrEmptyAccount = errors.New("slidegate: login without an account; check that one was entered before you call the guard")
	// ErrInvalidAddress is returned for the zero netip.Addr, 0.0.0.0 and ::, because no client has
	// these addresses.
	ErrInvalidAddress = errors.New("slidegate: login without a client address; take it from the Addr of httplimit.Clients")
)

var (
	errGuard        = errors.New("slidegate: this login guard is uninitialized; create it with New or NewLocal")
	errEmptyDevice  = errors.New("slidegate: login from a known device without its name; use Begin if the device is not known")
	errNoChallenges = errors.New("slidegate: login guard without challenges; set Config.Challenged, for example to &login.Challenged{}")
)

// New returns a guard that keeps its counts in the Redis or Redis Cluster that conn connects to.
// Create conn with window.Dial, window.On or package goredisgate. New requires Config.Name and
// Config.Secret. It sends nothing, so an error always concerns conn or cfg, and says what to do.
func New(conn *window.Connection, cfg Config) (*Guard, error) {
	if len(cfg.Secret) < keys.MinSecret {
		return nil, fmt.Errorf("slidegate: login guard %q has a Secret of %d bytes; give it at least %d random ones, so that Redis keys hide accounts and addresses", cfg.Name, len(cfg.Secret), keys.MinSecret)
	}
	return newGuard(cfg, store{
		window: func(c window.Config) (*window.Limiter, error) { return window.New(conn, c) },
		ar1:    func(c ar1.Config) (*ar1.Limiter, error) { return ar1.New(conn, c) },
	})
}

// NewLocal returns a guard that keeps its counts in this process's memory. Use it as a Fallback, or
// if the service is a single process. It needs no Secret.
func NewLocal(cfg Config) (*Guard, error) {
	return newGuard(cfg, store{window: window.NewLocal, ar1: ar1.NewLocal, inMemory: true})
}

// store creates limiters in one place: on a Connection, or in memory.
type store struct {
	window   func(window.Config) (*window.Limiter, error)
	ar1      func(ar1.Config) (*ar1.Limiter, error)
	inMemory bool
}

// newGuard returns a guard configured by cfg, whose limiters come from in. It has the budgets in
// the table for which cfg has limits.
func newGuard(cfg Config, in store) (g *Guard, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g = &Guard{name: cfg.Name, inMemory: in.inMemory, noTimeout: cfg.Timeout < 0}
	limits := cfg.limits()
	for _, b := range table {
		switch limits := limits[b.name]; {
		case limits == nil:
			continue
		case b.name == BudgetSite: // shares the counts of BudgetAddress
			b.limiter, err = g.Limiter(BudgetAddress).With(limits...)
		default:
			b.limiter, err = in.window(cfg.limiter(b.name, limits))
		}
		if err != nil {
			return nil, err
		}
		g.budgets = append(g.budgets, &b)
	}
	if err := cfg.checkTotal(limits); err != nil {
		return nil, err
	}
	if cfg.Challenged != nil {
		g.alarm, err = cfg.siteAlarm(in)
	}
	return g, err
}

// Limiter returns the limiter of the budget b, or nil if the guard has no such budget. Use it to
// Inspect or Reset an event key. Do not use it for attempts, because only Begin and similar methods
// ask all budgets.
func (g *Guard) Limiter(b Budget) *window.Limiter {
	if i := slices.IndexFunc(g.budgets, func(of *budget) bool { return of.name == b }); i >= 0 {
		return g.budgets[i].limiter
	}
	return nil
}

// Begin charges an attempt to log into the account from the IP address, and reports whether to
// check the password. Call it before the password is checked, even for accounts that do not exist,
// so that nobody can find out which accounts exist. If the attempt is allowed, check the password.
// If the password is right, call Succeed. If it is wrong, call nothing, so that the charges stay.
// If it could not be checked, call Cancel.
//
// A denial is an Attempt, not an error. The errors are ErrEmptyAccount, ErrInvalidAddress, and
// those of window.AllowAll. If Begin returns an error together with a denial, some charges could
// not be given back. After any error, let nobody in.
//
// Begin does not normalize the account: Alice and alice are two accounts. Pass the identifier that
// the application uses to look up the account, such as its number. If there is no such account,
// pass the typed name in the form in which you searched for it. Pass the IP address of the client,
// not that of a proxy: see httplimit.Clients.
//
// Once Begin has charged something, only Config.Timeout stops it: it continues even if ctx is done.
// Otherwise a client could hang up, or choose a gRPC deadline, in such a way that only the account
// is charged, but not the client's own address.
func (g *Guard) Begin(ctx context.Context, account string, ip netip.Addr) (*Attempt, error) {
	who, err := g.subject(account, ip)
	if err != nil {
		return nil, err
	}
	return g.beginUnknown(ctx, who)
}

// BeginKnown charges an attempt from a known device: one that has logged into this account before.
// The application must have verified this, for example with a signed cookie. Other devices cannot
// use up the budget of a known device. Neither an attack on the account nor failures from the same
// address can therefore lock the owner out.
//
// device is the ID in the cookie, which must be different for each device. If the device has used
// up its budget, BeginKnown charges the attempt as Begin does. In all other respects, BeginKnown
// behaves like Begin.
func (g *Guard) BeginKnown(ctx context.Context, account string, ip netip.Addr, device string) (*Attempt, error) {
	who, err := g.subject(account, ip)
	if err != nil {
		return nil, err
	}
	if device == "" {
		return nil, errEmptyDevice
	}
	who[byDevice] = strconv.Quote(device) + " " + account
	a, err := g.begin(ctx, beginKnown, who)
	if err != nil || a.Allowed || a.DeniedBy == BudgetTotal { // the total also limits unknown devices
		return a, err
	}
	other, err := g.beginUnknown(ctx, who)
	if err == nil && !other.Allowed && a.RetryAfter <= other.RetryAfter {
		a.Challenge = other.Challenge
		return a, nil
	}
	return other, err
}

// beginUnknown begins an attempt from an unknown device, or from a known device that has used up
// its budget.
func (g *Guard) beginUnknown(ctx context.Context, who subject) (*Attempt, error) {
	method := begin
	if g.Alarm().On {
		method = beginAlarmed
	}
	a, err := g.begin(ctx, method, who)
	g.alarm.count(ctx, a)
	if err == nil && !a.Allowed && a.DeniedBy != BudgetTotal && g.alarm != nil {
		a.Challenge = g.wouldAllow(ctx, who)
	}
	return a, err
}

// BeginChallenged charges an attempt of a client that has just solved a challenge. The application
// must have verified the solution. Call BeginChallenged after Begin or BeginKnown has denied the
// attempt and set Attempt.Challenge. It charges separate budgets and the account's total, so it can
// allow an attempt that Begin denies. Accept each solution only once, and only for one account.
//
// If the attempt succeeds, it resets BudgetChallengedStreak, but not BudgetStreak. Otherwise each
// login during an attack would give the attacker new guesses without a challenge. BeginChallenged
// returns an error if Config.Challenged is nil. In all other respects, it behaves like Begin.
func (g *Guard) BeginChallenged(ctx context.Context, account string, ip netip.Addr) (*Attempt, error) {
	who, err := g.subject(account, ip)
	if err != nil {
		return nil, err
	}
	if g.alarm == nil {
		return nil, errNoChallenges
	}
	a, err := g.begin(ctx, beginChallenged, who)
	g.alarm.count(ctx, a)
	return a, err
}

// wouldAllow reports whether a challenged attempt would be allowed now. It charges nothing, and
// takes one round trip.
func (g *Guard) wouldAllow(ctx context.Context, who subject) bool {
	ctx, cancel := g.detach(ctx)
	defer cancel()
	charges := g.charges(beginChallenged.asks, who)
	denied := make([]bool, len(charges))
	calls.Concurrently(len(charges), func(int) bool { return g.inMemory }, func(i int) {
		d, err := charges[i].limiter.Peek(ctx, charges[i].event)
		denied[i] = err != nil || !d.Allowed
	})
	return !slices.Contains(denied, true)
}

// checkAccount returns an error if the guard is not initialized, or the account is empty.
func (g *Guard) checkAccount(account string) error {
	switch {
	case g == nil || g.budgets == nil:
		return errGuard
	case account == "":
		return ErrEmptyAccount
	}
	return nil
}

// Forget resets what is charged to the account, and to its pairs with the given addresses. Call it
// when the owner has set a new password through a link in an email, or has proven their identity to
// the help desk. To let the owner log in immediately, pass the address that the owner came from.
//
// Forget keeps what is charged to the addresses for all accounts together, and the budgets of known
// devices. It also resets the Fallback of this process. If an attempt is under way during Forget,
// the end of that attempt can give back one failure that came after Forget. After an error, call
// Forget again.
func (g *Guard) Forget(ctx context.Context, account string, from ...netip.Addr) error {
	who, err := g.subjects(account, from)
	if err != nil {
		return err
	}
	return g.undo(ctx, resets(g.charges(forget.clears, who...)))
}

// ForgetAddress resets what is charged to the address or, for IPv6, to its /64. Use it for an
// address that many users share. It keeps what is charged to pairs of the address and an account.
func (g *Guard) ForgetAddress(ctx context.Context, ip netip.Addr) error {
	who, err := g.subject("any account", ip)
	if err != nil {
		return err
	}
	return g.undo(ctx, resets(g.charges(forgetAddress.clears, who)))
}
