package login

import (
	"fmt"
	"net/netip"

	"github.com/slidegate/slidegate/internal/keys"

	"github.com/slidegate/slidegate/window"
)

// Budget names what attempts are charged to. Each budget has its own limiter, whose Name is
// Config.Name, a dot and the budget: login.account.
type Budget string

// The budgets. Begin charges BudgetAddress and BudgetPair, then BudgetAccount, then BudgetStreak
// and BudgetTotal. BeginKnown charges BudgetDevice, then BudgetTotal. Each comment ends with the
// event key to pass to Limiter(b).Inspect and slidegate inspect.
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

	// BudgetDevice counts attempts from one known device on one account. Event key: the device,
	// quoted as by Go's %q, then a space and the account: "device" alice.
	BudgetDevice Budget = "device"

	// BudgetTotal counts all attempts on one account.
	// Event key: the account.
	BudgetTotal Budget = "total"
)

// The budgets of challenged attempts, which exist only if Config.Challenged is set. BeginChallenged
// charges them and BudgetTotal, in the same order as Begin. Their event keys are the same as those
// of the budgets whose names lack "challenged-".
const (
	BudgetChallengedAddress Budget = "challenged-address"
	BudgetChallengedPair    Budget = "challenged-pair"
	BudgetChallengedAccount Budget = "challenged-account"
	BudgetChallengedStreak  Budget = "challenged-streak"
)

// BudgetSite denies an unknown device whose address has failed twice while the alarm is on: see
// Challenged.Site. It uses the counts of BudgetAddress, but lowers each limit to at most two
// failures. Attempt.RetryAfter is then the wait if the alarm stays on.
const BudgetSite Budget = "site"

// table lists the budgets: what each of them counts by, and which methods ask and reset it. Methods
// ask the budgets in this order. A guard has only the budgets for which Config.limits returns
// limits.
var table = []budget{
	{name: BudgetAddress, by: byAddress, asked: begin, cleared: forgetAddress},
	{name: BudgetSite, by: byAddress, asked: beginAlarmed},
	{name: BudgetPair, by: byPair, asked: unknown, cleared: unknown | beginChallenged | forget},
	{name: BudgetAccount, by: byAccount, asked: unknown, cleared: forget},
	{name: BudgetStreak, by: byAccount, asked: unknown, cleared: unknown | beginKnown | forget},
	{name: BudgetDevice, by: byDevice, asked: beginKnown, cleared: unknown | beginKnown},
	{name: BudgetChallengedAddress, by: byAddress, asked: beginChallenged, cleared: forgetAddress},
	{name: BudgetChallengedPair, by: byPair, asked: beginChallenged, cleared: unknown | beginChallenged | forget},
	{name: BudgetChallengedAccount, by: byAccount, asked: beginChallenged, cleared: forget},
	{name: BudgetChallengedStreak, by: byAccount, asked: beginChallenged, cleared: anyAttempt | forget},
	{name: BudgetTotal, by: byAccount, asked: anyAttempt, cleared: forget},
}

// budget is a row of the table. In a guard, it also has a limiter.
type budget struct {
	name    Budget
	by      int     // the index of its event key in a subject
	asked   methods // the methods that ask and charge it
	cleared methods // the methods that reset it: Forget, ForgetAddress, and methods that began an attempt that succeeds
	limiter *window.Limiter
}

// methods is a set of methods of Guard.
type methods uint8

const (
	begin        methods = 1 << iota
	beginAlarmed         // Begin while the alarm is on
	beginKnown           // if the device has used up its budget, begin follows
	beginChallenged
	forget
	forgetAddress

	unknown    = begin | beginAlarmed
	anyAttempt = unknown | beginKnown | beginChallenged
)

func (m methods) asks(b *budget) bool   { return b.asked&m != 0 }
func (m methods) clears(b *budget) bool { return b.cleared&m != 0 }

// The indices of a subject.
const (
	byAddress = iota
	byPair
	byAccount
	byDevice
)

// subject holds the event keys of an attempt, or of what to forget. Methods skip a budget if its
// event key is empty.
type subject [byDevice + 1]string

// subject returns the subject of an attempt. It returns an error if the guard is not initialized,
// or if the account or the address is invalid.
func (g *Guard) subject(account string, ip netip.Addr) (subject, error) {
	if err := g.checkAccount(account); err != nil {
		return subject{}, err
	}
	if !ip.IsValid() || ip.Unmap().WithZone("").IsUnspecified() {
		return subject{}, ErrInvalidAddress
	}
	client := keys.ClientNetwork(ip)
	return subject{byAddress: client, byPair: client + " " + account, byAccount: account}, nil
}

// subjects returns a subject for each address that also covers its pair with the account, and then
// a subject for the account. It returns the same errors as subject.
func (g *Guard) subjects(account string, from []netip.Addr) (all []subject, err error) {
	for _, ip := range from {
		who, err := g.subject(account, ip)
		if err != nil {
			return nil, err
		}
		who[byAccount] = ""
		all = append(all, who)
	}
	return append(all, subject{byAccount: account}), g.checkAccount(account)
}

// charge is one unit that is charged to an event key of a budget.
type charge struct {
	*budget
	event string
}

// charges returns a charge to each selected budget, subject by subject, and for each subject in the
// order of the table.
func (g *Guard) charges(selects func(*budget) bool, subjects ...subject) []charge {
	all := make([]charge, 0, len(subjects)*len(g.budgets))
	for _, who := range subjects {
		for _, b := range g.budgets {
			if event := who[b.by]; event != "" && selects(b) {
				all = append(all, charge{b, event})
			}
		}
	}
	return all
}

// explain returns err. If err says that the ACL user has no permission for the keys of a budget,
// explain adds the key pattern for the whole guard.
func (g *Guard) explain(err error) error {
	if err == nil || window.ReasonOf(err) != window.ReasonNoPerm {
		return err
	}
	return fmt.Errorf("%w; for all budgets of the guard, give its user ~%s.*", err, g.name)
}
