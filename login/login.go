// Package login provides login throttling: it protects a login form against brute force and
// credential stuffing. It is a distributed rate limiter for attempts on anything that people type
// to prove who they are: passwords, PINs, one-time codes. Counts are in Redis, in Redis Cluster, or
// in memory.
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
// in before has its own budget. [Guard.BeginChallenged] admits an attempt whose client solved a
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
	"strconv"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/subnet"
	"github.com/slidegate/slidegate/window"
)

// Guard decides which attempts to log in are allowed. It is made by New or NewLocal. It is
// safe for concurrent use, and needs no Close.
type Guard struct {
	limiters  map[Budget]*window.Limiter
	alarm     *siteAlarm // nil without challenges
	inMemory  bool
	noTimeout bool // Config.Timeout is below 0: only the context ends calls
}

// Budget names what attempts are charged to. Each budget counts in a limiter of its own, whose Name
// is Config.Name, a dot and the budget: login.account.
type Budget string

// The budgets. Begin charges BudgetAddress and BudgetPair, then BudgetAccount, then BudgetStreak
// and BudgetTotal. BeginKnown charges BudgetDevice, then BudgetTotal. Each comment ends with the
// event key, as Limiter(b).Inspect and slidegate inspect take it.
const (
	// BudgetAddress counts attempts from one IPv4 address or one IPv6 /64, on any account.
	// Event key: 192.0.2.1 or 2001:db8:1:2::/64.
	BudgetAddress Budget = "address"

	// BudgetPair counts attempts from one address on one account.
	// Event key: the address, a space and the account: 192.0.2.1 alice.
	BudgetPair Budget = "pair"

	// BudgetAccount counts attempts from unknown devices on one account.
	// Event key: the account.
	BudgetAccount Budget = "account"

	// BudgetStreak counts attempts from unknown devices on one account since anybody last logged
	// in. Event key: the account.
	BudgetStreak Budget = "streak"

	// BudgetDevice counts attempts from one known device on one account.
	// Event key: the device, quoted as by Go's %q, a space and the account: "device" alice.
	BudgetDevice Budget = "device"

	// BudgetTotal counts all attempts on one account.
	// Event key: the account.
	BudgetTotal Budget = "total"
)

// The budgets of challenged attempts, which exist only with Config.Challenged. BeginChallenged
// charges them and BudgetTotal, in the same order as Begin. Their event keys are those of the
// budgets without "challenged-".
const (
	BudgetChallengedAddress Budget = "challenged-address"
	BudgetChallengedPair    Budget = "challenged-pair"
	BudgetChallengedAccount Budget = "challenged-account"
	BudgetChallengedStreak  Budget = "challenged-streak"
)

// BudgetSite denies an unknown device while the alarm is on and its address has failed twice: see
// Challenged.Site. It counts in BudgetAddress, with at most two failures in each limit.
// Attempt.RetryAfter is then the wait if the alarm stays on.
const BudgetSite Budget = "site"

// Errors that callers can distinguish with errors.Is. In an outage of Redis, errors match
// window.ErrOutage or window.ErrUncertain.
var (
	// ErrEmptyAccount is returned for the account "". All users without an account name would share
	// it.
	ErrEmptyAccount = errors.New("slidegate: login without an account; check that one was typed before you call the guard")
	// ErrEmptyDevice is returned by BeginKnown for the device "".
	ErrEmptyDevice = errors.New("slidegate: login from a known device without its name; use Begin if the device is not known")
	// ErrInvalidAddress is returned for the zero netip.Addr, 0.0.0.0 and ::, because no client has
	// these addresses.
	ErrInvalidAddress = errors.New("slidegate: login without an address of the client; take it from httplimit.ClientAddr(request), or behind a proxy from the Addr of httplimit.Clients")
)

var errGuard = errors.New("slidegate: a login guard that comes neither from New nor from NewLocal; make it by one of them")

// New returns a guard that keeps its counts in the Redis or Redis Cluster of a Connection, which
// comes from window.Dial, window.On or package goredisgate. It requires Config.Name and
// Config.Secret, and sends nothing yet. An error is about conn or cfg, and says what to do.
func New(conn *window.Connection, cfg Config) (*Guard, error) {
	if len(cfg.Secret) < keys.MinSecret {
		return nil, cfg.errSecret()
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
func newGuard(cfg Config, in store) (*Guard, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g := &Guard{limiters: map[Budget]*window.Limiter{}, inMemory: in.inMemory, noTimeout: cfg.Timeout < 0}
	for _, b := range cfg.budgets() {
		l, err := in.window(cfg.limiter(b))
		if err != nil {
			return nil, err
		}
		g.limiters[b.of] = l
	}
	if err := cfg.checkTotal(); err != nil {
		return nil, err
	}
	if cfg.Challenged == nil {
		return g, nil
	}
	return g, g.addAlarm(cfg, in)
}

// addAlarm adds the alarm over the whole service, and the limiter BudgetSite that it uses.
func (g *Guard) addAlarm(cfg Config, in store) (err error) {
	if g.limiters[BudgetSite], err = g.limiters[BudgetAddress].With(suspectLimits(orDefault(cfg.Address, addressLimits))...); err != nil {
		return err
	}
	g.alarm, err = cfg.siteAlarm(in)
	return err
}

// Limiter returns the limiter of a budget, or nil if the guard has no such budget. Use it to
// Inspect or Reset an event key. Do not use it for attempts: Begin asks all budgets.
func (g *Guard) Limiter(b Budget) *window.Limiter { return g.limiters[b] }

// Begin charges an attempt to log in on an account from an IP address, and reports whether to check
// the password. Call it before the password is checked, also for accounts that do not exist, so
// that nobody learns which ones do. If the attempt is allowed, check the password. If that is
// right, call Succeed. If it is wrong, call nothing: the charges stay. If it could not be checked,
// call Cancel.
//
// A denial is an Attempt and not an error. The errors are ErrEmptyAccount, ErrInvalidAddress, and
// those of window.AllowAll. An error beside a denial means that some charges could not be given
// back. After any error, let nobody in.
//
// Begin does not change the account: Alice and alice are two accounts. Pass what the application
// looks the account up by, such as its number. For an account that does not exist, pass the typed
// name in the form in which you searched for it. Pass the IP address of the client, not of a proxy:
// see httplimit.Clients.
//
// Once Begin has charged something, the end of ctx does not stop it, but Config.Timeout does.
// Otherwise a client could hang up, or choose a gRPC deadline, so that only the account is charged
// and not its own address.
func (g *Guard) Begin(ctx context.Context, account string, ip netip.Addr) (*Attempt, error) {
	if err := g.check(account, ip); err != nil {
		return nil, err
	}
	return g.beginUnknown(ctx, account, ip)
}

// BeginKnown charges an attempt from a known device: one that has logged into this account before,
// as the application has verified by a signed cookie. Other devices cannot use up its budget. So
// neither an attack on the account nor failures from the same address lock the owner out.
//
// device is the ID in the cookie, different for each device. If the device has used up its budget,
// the attempt is charged as by Begin. Otherwise BeginKnown behaves like Begin.
func (g *Guard) BeginKnown(ctx context.Context, account string, ip netip.Addr, device string) (*Attempt, error) {
	if err := g.check(account, ip); err != nil {
		return nil, err
	}
	if device == "" {
		return nil, ErrEmptyDevice
	}
	own := charge{BudgetDevice, strconv.Quote(device) + " " + account}
	a, err := g.begin(ctx, []charge{own, {BudgetTotal, account}}, append(g.streakCharges(account), own)...)
	if err != nil || a.Allowed || a.DeniedBy == BudgetTotal { // the total also limits unknown devices
		return a, err
	}
	other, err := g.beginUnknown(ctx, account, ip, own)
	if err == nil && !other.Allowed && a.RetryAfter <= other.RetryAfter {
		a.Challenge = other.Challenge
		return a, nil
	}
	return other, err
}

// check returns an error if the guard is not initialized, or the account or the address is invalid.
func (g *Guard) check(account string, ip netip.Addr) error {
	if err := g.checkAccount(account); err != nil {
		return err
	}
	return checkAddress(ip)
}

// checkAccount returns an error if the guard is not initialized, or the account is empty.
func (g *Guard) checkAccount(account string) error {
	switch {
	case g == nil || g.limiters == nil:
		return errGuard
	case account == "":
		return ErrEmptyAccount
	}
	return nil
}

// checkAddress returns ErrInvalidAddress for an address that no client has.
func checkAddress(ip netip.Addr) error {
	if !ip.IsValid() || ip.Unmap().WithZone("").IsUnspecified() {
		return ErrInvalidAddress
	}
	return nil
}

// beginUnknown begins an attempt from an unknown device. Its success clears the pair, the streak
// and the charges in own: the budget of a known device that has used it up.
func (g *Guard) beginUnknown(ctx context.Context, account string, ip netip.Addr, own ...charge) (*Attempt, error) {
	from := addressCharges(account, ip)
	cleared := append(g.withChallenged([]charge{from[1], {BudgetStreak, account}}), own...)
	if g.alarm.isOn() {
		from[0].budget = BudgetSite
	}
	a, err := g.begin(ctx, append(from, accountCharges(account)...), cleared...)
	g.alarm.count(ctx, a)
	if err == nil && !a.Allowed && a.DeniedBy != BudgetTotal && g.challenges() {
		a.Challenge = g.wouldAdmit(ctx, account, ip)
	}
	return a, err
}

// streakCharges returns what a login clears from any device.
func (g *Guard) streakCharges(account string) []charge {
	return g.withChallenged([]charge{{BudgetStreak, account}})
}

// addressCharges returns what an attempt is charged to because of its address: the address and the
// pair.
func addressCharges(account string, ip netip.Addr) []charge {
	client := subnet.Client(ip)
	return []charge{{BudgetAddress, client}, {BudgetPair, client + " " + account}}
}

// accountCharges returns what an attempt from an unknown device is charged to because of its
// account.
func accountCharges(account string) []charge {
	return []charge{{BudgetAccount, account}, {BudgetStreak, account}, {BudgetTotal, account}}
}

// pairCharge returns the charge to the pair of an address and an account.
func pairCharge(account string, ip netip.Addr) charge {
	return charge{BudgetPair, subnet.Client(ip) + " " + account}
}

// Forget resets what is charged to an account, and to its pairs with the given addresses. Call it
// when the owner has set a new password by a link in a mail, or has proven who they are at the help
// desk. Pass the address that this came from, if it should log in at once.
//
// Forget keeps what is charged to an address for all accounts, and the budgets of known devices. It
// also resets the Fallback of this process. An attempt that was under way can later give back one
// failure that came after Forget. After an error, call Forget again.
func (g *Guard) Forget(ctx context.Context, account string, from ...netip.Addr) error {
	if err := g.checkAccount(account); err != nil {
		return err
	}
	all := accountCharges(account)
	for _, ip := range from {
		if err := checkAddress(ip); err != nil {
			return err
		}
		all = append(all, pairCharge(account, ip))
	}
	return g.forget(ctx, g.withChallenged(all)...)
}

// ForgetAddress resets what is charged to an address, or to the /64 of an IPv6 address. Use it for
// an address that many people share. It keeps the pairs of the address with accounts.
func (g *Guard) ForgetAddress(ctx context.Context, ip netip.Addr) error {
	if err := g.check("any account", ip); err != nil {
		return err
	}
	return g.forget(ctx, g.withChallenged([]charge{{BudgetAddress, subnet.Client(ip)}})...)
}

// forget resets some budgets in one round trip.
func (g *Guard) forget(ctx context.Context, all ...charge) error {
	return g.concurrently(len(all), func(i int) error { return g.clear(ctx, all[i]) })
}

// clear resets one budget.
func (g *Guard) clear(ctx context.Context, c charge) error {
	if err := g.limiters[c.budget].Reset(ctx, c.event); err != nil {
		return fmt.Errorf("slidegate: login: cannot forget what is charged to the %s: %w", c.budget, err)
	}
	return nil
}
