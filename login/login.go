// Package login provides login throttling: it protects a login form against brute force and
// credential stuffing. It is a distributed rate limiter for attempts at anything that users type to
// prove who they are: passwords, PINs, one-time codes. Counts are kept in Redis, in Redis Cluster,
// or in memory.
//
// A [Guard] charges each attempt before the password is checked. It charges the IP address, the
// address and account as a pair, and the account. A wrong password leaves the charges, and a right
// one gives them back. So a thousand guesses at once get no further than a thousand in sequence. A
// botnet with any number of addresses fails at most 100 times in an hour on one account.
//
//	conn := window.Dial("redis://127.0.0.1:6379")
//	guard, err := login.New(conn, login.Config{Name: "login", Secret: secret})
//	...
//	a, err := guard.Begin(ctx, account, ip)
//	switch {
//	case err != nil: // Redis does not answer: let nobody in, or set Config.Fallback
//	case !a.Allowed: // answer HTTP 429 with a.RetryAfter, and do not check the password
//	case right(account, password): // let the user in
//		err = a.Succeed(ctx)
//	default: // wrong password: the charges stay
//	}
//
// [Guard.BeginKnown] keeps an account open for its owner during an attack: a device that has logged
// in before has its own budget. [Guard.BeginChallenged] allows an attempt whose client solved a
// captcha.
//
// Package [github.com/slidegate/slidegate/login/loginhttp] is a complete login form for net/http.
// The defaults, their sources and simulated attacks are in
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
	noTimeout bool // Config.Timeout is below 0: only the context ends calls
}

// Errors that callers can distinguish with errors.Is. In an outage of Redis, errors match
// window.ErrOutage or window.ErrUncertain.
var (
	// ErrEmptyAccount is returned for the account "". All users without an account name would share
	// it.
	ErrEmptyAccount = errors.New("slidegate: login without an account; check that one was entered before you call the guard")
	// ErrEmptyDevice is returned by BeginKnown for the device "".
	ErrEmptyDevice = errors.New("slidegate: login from a known device without its name; use Begin if the device is not known")
	// ErrInvalidAddress is returned for the zero netip.Addr, 0.0.0.0 and ::, because no client has
	// these addresses.
	ErrInvalidAddress = errors.New("slidegate: login without a client address; take it from httplimit.ClientAddr(request), or behind a proxy from the Addr of httplimit.Clients")
)

var (
	errGuard        = errors.New("slidegate: this login guard is uninitialized; create it with New or NewLocal")
	errNoChallenges = errors.New("slidegate: login guard without challenges; set Config.Challenged, for example to &login.Challenged{}")
)

// New returns a guard that keeps its counts in the Redis or Redis Cluster of a Connection, which
// you get from window.Dial, window.On or package goredisgate. It requires Config.Name and
// Config.Secret, and sends nothing yet. An error is about conn or cfg, and says what to do.
func New(conn *window.Connection, cfg Config) (*Guard, error) {
	if len(cfg.Secret) < keys.MinSecret {
		return nil, fmt.Errorf("slidegate: login guard %q has a Secret of %d bytes; give it at least %d random ones, so that Redis keys hide accounts and addresses", cfg.Name, len(cfg.Secret), keys.MinSecret)
	}
	return newGuard(cfg, store{
		window: func(c window.Config) (*window.Limiter, error) { return window.New(conn, c) },
		ar1:    func(c ar1.Config) (*ar1.Limiter, error) { return ar1.New(conn, c) },
	})
}

// NewLocal returns a guard that keeps its counts in the memory of this process. Use it as a
// Fallback, or for a service of one process. It needs no Secret.
func NewLocal(cfg Config) (*Guard, error) {
	return newGuard(cfg, store{window: window.NewLocal, ar1: ar1.NewLocal, inMemory: true})
}

// store makes limiters in one place: Redis, a Connection or memory.
type store struct {
	window   func(window.Config) (*window.Limiter, error)
	ar1      func(ar1.Config) (*ar1.Limiter, error)
	inMemory bool
}

// newGuard returns the guard of cfg, with limiters from the store.
func newGuard(cfg Config, in store) (g *Guard, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g = &Guard{name: cfg.Name, inMemory: in.inMemory, noTimeout: cfg.Timeout < 0}
	if err := g.addBudgets(cfg, in); err != nil {
		return nil, err
	}
	if cfg.Challenged != nil {
		g.alarm, err = cfg.siteAlarm(in)
	}
	return g, err
}

// addBudgets adds the budgets of the table that have limits, and validates the limits.
func (g *Guard) addBudgets(cfg Config, in store) (err error) {
	limits := cfg.limits()
	for _, b := range table {
		switch limits := limits[b.name]; {
		case limits == nil:
			continue
		case b.name == BudgetSite: // shares the counts
			b.limiter, err = g.Limiter(BudgetAddress).With(limits...)
		default:
			b.limiter, err = in.window(cfg.limiter(b.name, limits))
		}
		if err != nil {
			return err
		}
		g.budgets = append(g.budgets, &b)
	}
	return cfg.checkTotal(limits)
}

// Limiter returns the limiter of a budget, or nil if the guard has no such budget. Use it to
// Inspect or Reset an event key. Do not use it for attempts: Begin asks all budgets.
func (g *Guard) Limiter(b Budget) *window.Limiter {
	if i := slices.IndexFunc(g.budgets, func(of *budget) bool { return of.name == b }); i >= 0 {
		return g.budgets[i].limiter
	}
	return nil
}

// Begin charges an attempt to log into an account from an IP address, and reports whether to check
// the password. Call it before the password is checked, even for accounts that do not exist, so
// that nobody learns which ones do. If the attempt is allowed, check the password. If that is
// right, call Succeed. If it is wrong, call nothing: the charges stay. If it could not be checked,
// call Cancel.
//
// A denial is an Attempt and not an error. The errors are ErrEmptyAccount, ErrInvalidAddress, and
// those of window.AllowAll. An error together with a denial means that some charges could not be
// given back. After any error, let nobody in.
//
// Begin does not change the account: Alice and alice are two accounts. Pass the identifier by which
// the application looks up the account, such as its number. For an account that does not exist,
// pass the typed name in the form in which you searched for it. Pass the IP address of the client,
// not of a proxy: see httplimit.Clients.
//
// Once Begin has charged something, only Config.Timeout stops it, and not the end of ctx. Otherwise
// a client could hang up, or choose a gRPC deadline, so that only the account is charged and not
// its own address.
func (g *Guard) Begin(ctx context.Context, account string, ip netip.Addr) (*Attempt, error) {
	who, err := g.subject(account, ip)
	if err != nil {
		return nil, err
	}
	return g.beginUnknown(ctx, who)
}

// BeginKnown charges an attempt from a known device: one that has logged into this account before,
// as the application has verified with a signed cookie. Other devices cannot use up its budget. So
// neither an attack on the account nor failures from the same address lock the owner out.
//
// device is the ID in the cookie, different for each device. If the device has used up its budget,
// the attempt is charged as by Begin. Otherwise BeginKnown behaves like Begin.
func (g *Guard) BeginKnown(ctx context.Context, account string, ip netip.Addr, device string) (*Attempt, error) {
	who, err := g.subject(account, ip)
	if err != nil {
		return nil, err
	}
	if device == "" {
		return nil, ErrEmptyDevice
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

// beginUnknown begins an attempt from an unknown device, or from a known one that has used up its
// budget.
func (g *Guard) beginUnknown(ctx context.Context, who subject) (*Attempt, error) {
	method := begin
	if g.alarm.isOn() {
		method = beginAlarmed
	}
	a, err := g.begin(ctx, method, who)
	g.alarm.count(ctx, a)
	if err == nil && !a.Allowed && a.DeniedBy != BudgetTotal && g.alarm != nil {
		a.Challenge = g.wouldAllow(ctx, who)
	}
	return a, err
}

// BeginChallenged charges an attempt whose client has just solved a challenge, as the application
// has verified. Call it after Begin or BeginKnown denied with Attempt.Challenge. It charges
// separate budgets, and the total of the account, so it can be allowed where the others deny.
// Accept each solution once, for one account.
//
// Its success resets the streak of challenged attempts, but not the other one. Otherwise each login
// during an attack would give the attacker new guesses without a challenge. It returns an error
// without Config.Challenged. In everything else it behaves like Begin.
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
	calls.Concurrently(0, len(charges), func(int) bool { return g.inMemory }, func(i int) {
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

// Forget resets what is charged to an account, and to its pairs with the given addresses. Call it
// when the owner has set a new password through a link in an email, or has proven their identity to
// the help desk. Pass the address that the owner came from if it should be able to log in at once.
//
// Forget keeps what is charged to an address for all accounts, and the budgets of known devices. It
// also resets the Fallback of this process. An attempt that was under way can later give back one
// failure that came after Forget. After an error, call Forget again.
func (g *Guard) Forget(ctx context.Context, account string, from ...netip.Addr) error {
	who, err := g.subjects(account, from)
	if err != nil {
		return err
	}
	return g.forget(ctx, forget, who...)
}

// ForgetAddress resets what is charged to an address, or to the /64 of an IPv6 address. Use it for
// an address that many users share. It keeps the pairs of the address with accounts.
func (g *Guard) ForgetAddress(ctx context.Context, ip netip.Addr) error {
	who, err := g.subject("any account", ip)
	if err != nil {
		return err
	}
	return g.forget(ctx, forgetAddress, who)
}

// forget resets what the method clears, in one round trip.
func (g *Guard) forget(ctx context.Context, method methods, who ...subject) error {
	return g.undo(ctx, resets(g.charges(method.clears, who...)))
}
