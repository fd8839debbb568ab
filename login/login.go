// Package login guards a check of passwords, or of any other secret that people type, against those who guess.
//
// Each attempt is charged before the password is looked at, to all that it might be abused for: the address that it comes from, the
// address and the account as a pair, and the account. A failure stays charged. So guesses are few, however many are made at once and
// from wherever they come: at most 100 failures in an hour on one account. docs/login.md shows a whole form.
//
//	a, err := guard.Begin(ctx, account, ip)
//	switch {
//	case err != nil: // no Redis: let nobody in, or have a Fallback
//	case !a.Allowed: // tell the user to come back in a.RetryAfter, whatever the password is
//	case password is right: a.Succeed(ctx)
//	}
package login

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/subnet"
	"github.com/slidegate/slidegate/window"
)

// Guard decides which attempts to log in may be made. It comes from New or NewLocal, is safe for concurrent use and needs no Close.
type Guard struct {
	limiters map[Budget]*window.Limiter
	site     *site // nil without challenges
	inMemory bool
	untimed  bool // Config.Timeout leaves it to the context
}

// Budget is what attempts are charged to. Each has its own counts, in a limiter named after it: Config.Name, a dot and the budget.
type Budget string

// The budgets. An attempt of Begin is charged to address and pair, then to account, then to streak and total; one of BeginKnown to device, then to total. An
// event is what the key of a limiter is about, for slidegate inspect.
const (
	Address Budget = "address" // all attempts from an IPv4 address or an IPv6 /64. The event is that: 192.0.2.1 or 2001:db8:1:2::/64
	Pair    Budget = "pair"    // those on one account from one address. The event is both, with a space: 192.0.2.1 alice
	Account Budget = "account" // those on one account from unknown devices. The event is the account
	Streak  Budget = "streak"  // those on one account from unknown devices since the last login of anybody. The event is the account
	Device  Budget = "device"  // those on one account from one known device. The event is both: "device" alice, with the device as Go quotes it
	Total   Budget = "total"   // all on one account. The event is the account
)

// The budgets of challenged attempts, if there is a Config.Challenged. An attempt of BeginChallenged is charged to these and to Total, in the same order.
// Their events are as those of the budgets without "challenged-".
const (
	ChallengedAddress Budget = "challenged-address"
	ChallengedPair    Budget = "challenged-pair"
	ChallengedAccount Budget = "challenged-account"
	ChallengedStreak  Budget = "challenged-streak"
)

// Site denies an unknown device while the alarm is on, if its address has failed twice: see Challenged.Site. It is the budget Address with at most two failures
// in each limit. Attempt.RetryAfter is then the wait if the alarm lasts.
const Site Budget = "site"

// Errors that a caller may want to tell apart, by errors.Is. For an outage of Redis they are window.ErrOutage and window.ErrUncertain.
var (
	// ErrEmptyAccount is returned for the account "", which everybody without one would share.
	ErrEmptyAccount = errors.New("slidegate: login without an account; ask for one before the guard is asked")
	// ErrEmptyDevice is returned by BeginKnown for the device "".
	ErrEmptyDevice = errors.New("slidegate: login from a known device without its name; use Begin if the device is not known")
	// ErrAddress is returned for the zero netip.Addr, 0.0.0.0 and ::, from which no client calls.
	ErrAddress = errors.New("slidegate: login without an address of the client; take it from httplimit.ClientAddr(request), or behind a proxy from the Addr of httplimit.Clients")
)

var errGuard = errors.New("slidegate: a login guard that comes neither from New nor from NewLocal; make it by one of them")

// New returns a guard that keeps its counts in the Redis or Redis Cluster behind client. It sends nothing yet. It takes only a Config
// with a Secret. An error is about client or cfg, and says what to do.
func New(client rueidis.Client, cfg Config) (*Guard, error) {
	if len(cfg.Secret) < minSecret {
		return nil, cfg.errSecret()
	}
	return newGuard(cfg, store{
		window: func(c window.Config) (*window.Limiter, error) { return window.New(client, c) },
		ar1:    func(c ar1.Config) (*ar1.Limiter, error) { return ar1.New(client, c) },
	})
}

// NewOn is New on a Connection, from window.Connect or from package goredisgate. While there is no
// connection yet, answers are those of an outage.
func NewOn(conn *window.Connection, cfg Config) (*Guard, error) {
	if len(cfg.Secret) < minSecret {
		return nil, cfg.errSecret()
	}
	return newGuard(cfg, store{
		window: func(c window.Config) (*window.Limiter, error) { return window.NewOn(conn, c) },
		ar1:    func(c ar1.Config) (*ar1.Limiter, error) { return ar1.NewOn(conn, c) },
	})
}

// NewLocal returns the same guard on counts in this process's memory, as a Fallback, or for a service of one process. It needs no Secret.
func NewLocal(cfg Config) (*Guard, error) {
	return newGuard(cfg, store{window: window.NewLocal, ar1: ar1.NewLocal, inMemory: true})
}

// store makes limiters.
type store struct {
	window   func(window.Config) (*window.Limiter, error)
	ar1      func(ar1.Config) (*ar1.Limiter, error)
	inMemory bool
}

func newGuard(cfg Config, in store) (*Guard, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g := &Guard{limiters: map[Budget]*window.Limiter{}, inMemory: in.inMemory, untimed: cfg.Timeout < 0}
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
	return g, g.watch(cfg, in)
}

// watch gives the guard its alarm.
func (g *Guard) watch(cfg Config, in store) (err error) {
	if g.limiters[Site], err = g.limiters[Address].With(suspectLimits(or(cfg.Address, addressLimits))...); err != nil {
		return err
	}
	g.site, err = cfg.site(in)
	return err
}

// Limiter is that of a budget, to look at what an event of it has used, or to Reset one. It is nil if there is no such budget. Attempts are for Begin,
// which asks all of them.
func (g *Guard) Limiter(b Budget) *window.Limiter { return g.limiters[b] }

// Begin asks whether a password may be tried on an account from an address, and charges the attempt to both. Ask it before the password
// is looked at, also for accounts that do not exist: so nobody learns which do. If it allows, look at the password, and then call Succeed
// if it was right, or nothing if it was wrong. Cancel is for attempts that came to nothing.
//
// Once it has begun to charge, it goes on though ctx ends, and Config.Timeout bounds it. Otherwise a client that hangs up at the right moment, or chooses the deadline as in
// gRPC, could have an account charged, and not its address.
//
// A denial is an Attempt, not an error. The errors are ErrEmptyAccount, ErrAddress, and those of window.AllowAll; where one comes beside a
// denial, some of what had been charged could not be given back. With an error, let nobody in.
//
// The guard takes each name as it is: Alice and alice are two accounts to it. Give it the name by which the application looks up the account,
// such as its number, or if there is none, what was typed in the form in which it was searched for. ip is the client's, not that of a proxy:
// httplimit.Clients finds it.
func (g *Guard) Begin(ctx context.Context, account string, ip netip.Addr) (*Attempt, error) {
	if err := g.check(account, ip); err != nil {
		return nil, err
	}
	return g.stranger(ctx, account, ip)
}

// BeginKnown is Begin for a device that has logged into this very account before, as a signed cookie tells that the application has verified.
// It is charged to budgets that strangers cannot use up: whoever attacks the account, or shares the address of the device, does not
// hold its owner out. When the device's own budget is used up, the attempt is one of Begin. device is what the cookie names it by, different for each.
func (g *Guard) BeginKnown(ctx context.Context, account string, ip netip.Addr, device string) (*Attempt, error) {
	if err := g.check(account, ip); err != nil {
		return nil, err
	}
	if device == "" {
		return nil, ErrEmptyDevice
	}
	own := charge{Device, strconv.Quote(device) + " " + account}
	a, err := g.begin(ctx, []charge{own, {Total, account}}, append(g.streak(account), own)...)
	if err != nil || a.Allowed || a.Denied == Total { // the total holds for everybody
		return a, err
	}
	other, err := g.stranger(ctx, account, ip, own)
	if err == nil && !other.Allowed && a.RetryAfter <= other.RetryAfter {
		a.Challenge = other.Challenge
		return a, nil
	}
	return other, err
}

func (g *Guard) check(account string, ip netip.Addr) error {
	if err := g.checkAccount(account); err != nil {
		return err
	}
	return checkAddress(ip)
}

func (g *Guard) checkAccount(account string) error {
	switch {
	case g == nil || g.limiters == nil:
		return errGuard
	case account == "":
		return ErrEmptyAccount
	}
	return nil
}

func checkAddress(ip netip.Addr) error {
	if !ip.IsValid() || ip.Unmap().WithZone("").IsUnspecified() {
		return ErrAddress
	}
	return nil
}

// stranger begins an attempt from anywhere. Its success also clears what else is the user's own.
func (g *Guard) stranger(ctx context.Context, account string, ip netip.Addr, own ...charge) (*Attempt, error) {
	from := ofAddress(account, ip)
	cleared := append(g.withChallenged([]charge{from[1], {Streak, account}}), own...)
	if g.site.alarmed() {
		from[0].budget = Site
	}
	a, err := g.begin(ctx, append(from, ofAccount(account)...), cleared...)
	g.site.count(ctx, a)
	if err == nil && !a.Allowed && a.Denied != Total && g.challenges() {
		a.Challenge = g.wouldAdmit(ctx, account, ip)
	}
	return a, err
}

// streak returns what any login clears.
func (g *Guard) streak(account string) []charge {
	return g.withChallenged([]charge{{Streak, account}})
}

// ofAddress returns what an attempt is charged to because of its address: the address, and the pair.
func ofAddress(account string, ip netip.Addr) []charge {
	client := subnet.Client(ip)
	return []charge{{Address, client}, {Pair, client + " " + account}}
}

// ofAccount returns what an attempt from an unknown device is charged to wherever it comes from.
func ofAccount(account string) []charge {
	return []charge{{Account, account}, {Streak, account}, {Total, account}}
}

func pairOf(account string, ip netip.Addr) charge {
	return charge{Pair, subnet.Client(ip) + " " + account}
}

// Forget makes the account as if nobody had failed on it, such as when its owner has set a new password by a link in a mail, or has proven at the help desk
// who it is. It also forgets what failed on it from the addresses given, such as the one that the new password came from. What is charged to an address
// for any account stays, and so does the budget of a known device. The limits of the account begin anew; attempts under way that are given back later can take
// back a failure that came after this. It forgets in the Fallback of this process, too. After an error, call it again.
func (g *Guard) Forget(ctx context.Context, account string, from ...netip.Addr) error {
	if err := g.checkAccount(account); err != nil {
		return err
	}
	all := ofAccount(account)
	for _, ip := range from {
		if err := checkAddress(ip); err != nil {
			return err
		}
		all = append(all, pairOf(account, ip))
	}
	return g.forget(ctx, g.withChallenged(all)...)
}

// ForgetAddress makes the address, or the /64 of an IPv6 one, as if nobody had failed from it, such as one that many people share. Pairs with accounts stay.
func (g *Guard) ForgetAddress(ctx context.Context, ip netip.Addr) error {
	if err := g.check("any account", ip); err != nil {
		return err
	}
	return g.forget(ctx, g.withChallenged([]charge{{Address, subnet.Client(ip)}})...)
}

// forget forgets what is charged to some budgets, in one round trip.
func (g *Guard) forget(ctx context.Context, all ...charge) error {
	return g.sideBySide(len(all), func(i int) error { return g.clear(ctx, all[i]) })
}

// clear forgets what is charged to a budget.
func (g *Guard) clear(ctx context.Context, c charge) error {
	if err := g.limiters[c.budget].Reset(ctx, c.event); err != nil {
		return fmt.Errorf("slidegate: login: what is charged to the %s is not forgotten: %w", c.budget, err)
	}
	return nil
}
