package login

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/window"
)

// Config configures a Guard. Name is always required, and New also requires Secret. Limits that are
// nil have the defaults given here. If a budget has several limits, all of them apply, so the wait
// grows with the number of failures. For the sources of the defaults, and advice for each field,
// see https://github.com/slidegate/slidegate/blob/main/docs/login.md.
type Config struct {
	// Name is the prefix of the Name of each limiter, and thus of its Redis keys: login.account,
	// login.pair. It has 1 to 45 bytes, and consists of the characters that window.Config allows.
	// Guards with the same Name and Secret share their counts.
	Name string

	// Secret hides accounts and addresses in Redis keys with a keyed hash. It has at least 16
	// random bytes, and must be the same in all processes. If Secret changes, all counts start at
	// zero.
	Secret []byte `json:"-"`

	// Address limits the failures of one IPv4 address or IPv6 /64 on all accounts together.
	// Default: 20/1m, 50/1h, 100/1d, against both short bursts and slow guessing (OWASP Credential
	// Stuffing Prevention). Raise the limits for offices that share an address.
	Address []window.Limit

	// Pair limits the failures of one address on one account since that address last logged into
	// that account. Default: 5/1m, 7/10m, 10/1h, 20/1d, 30/30d. Waits grow from seconds to an hour
	// (NIST SP 800-63B rev. 3, 5.2.2), and one address alone cannot use up an account's budget.
	Pair []window.Limit

	// Account limits the failures of all unknown devices on one account. Successful logins do not
	// reset it. Default: 10/10m, 20/1h, 50/1d. It stops a botnet (OWASP Authentication). Within the
	// Per of each limit in Total, Account must allow at most nine tenths of that limit, so that the
	// rest is left for known devices.
	Account []window.Limit

	// Streak limits the failures of unknown devices on one account since anybody last logged in.
	// Default: 80/30d, or 60/30d if Challenged is set. Together with 20 failures of one known
	// device, that makes at most 100 in a row (NIST SP 800-63B rev. 3, 5.2.2 and rev. 4, 3.2.2).
	Streak []window.Limit

	// Total limits all failures on one account. Default, and also the highest valid limit: 100/1h
	// (OWASP ASVS 4, 2.2.1). If Total has no limit per hour, 100/1h is added. It applies even while
	// limits are being changed, as long as Name and Secret stay the same.
	Total []window.Limit

	// Device limits the failures of one known device on its account since it last logged in.
	// Default: 5/1m, 10/1h, 20/30d (OWASP device cookies). A device that has used up these limits
	// is treated as unknown.
	Device []window.Limit

	// Challenged is for services that can show a captcha or another challenge. Attempt.Challenge
	// then reports whether a challenge would help, and BeginChallenged allows attempts of clients
	// that solved it. Challenged also adds an alarm for the whole service: see Challenged.Site. nil
	// means no challenges.
	Challenged *Challenged

	// Now is the clock, as in window.Config. Set it only for replay and simulation.
	Now func() time.Time `json:"-"`

	// Observe is called for each budget that decides, as in window.Config, but not for charges that
	// are given back. If Challenged is set, Observe is also called for the limiter Name + ".site",
	// which holds the level of the alarm and denies while the level is full.
	Observe func(ctx context.Context, o window.Observation) `json:"-"`

	// OnDenied is called for each budget that denies an attempt. It receives the event key: see
	// window.Denial. Denial.Limiter is Name, a dot and the budget: login.account, login.pair. If
	// there is a Secret, Denial.Event is a hash.
	OnDenied func(ctx context.Context, d window.Denial) `json:"-"`

	// Timeout bounds how long an allowed Begin waits for Redis: each of its up to five round trips
	// gets a fifth of Timeout. 0 means one second. A denial can take two more round trips, and an
	// attempt from a known device that has used up its budget one more. If Timeout is negative,
	// only the deadline of ctx applies, so do not let clients choose that deadline: see Begin.
	Timeout time.Duration

	// Fallback decides while Redis cannot answer, with the limits of its own Config. It usually
	// comes from NewLocal, so that each process has its own counts in an outage. Without a
	// Fallback, Begin returns an error in an outage, and nobody can log in.
	Fallback *Guard `json:"-"`
}

// Challenged limits attempts whose clients solved a challenge: a captcha, a proof of work, or a
// code sent by email. They are counted separately from other attempts, so users can log in even if
// attackers have used up the usual budgets. Limits that are nil have the defaults given here. For
// details, see https://github.com/slidegate/slidegate/blob/main/docs/login.md#challenges.
type Challenged struct {
	// Address limits the challenged failures of one address on all accounts together. Default:
	// 20/1m, 50/1h, 100/1d, as for Config.Address.
	Address []window.Limit

	// Pair limits the challenged failures of one address on one account since that address last
	// logged into that account. Default: 5/1m, 10/1h.
	Pair []window.Limit

	// Account limits the challenged failures of all addresses on one account. Default: 5/10m,
	// 10/1h, 20/1d. Within the Per of each limit in Config.Total, this Account and Config.Account
	// together must allow at most nine tenths of that limit.
	Account []window.Limit

	// Streak limits the challenged failures on one account since anybody last logged in. Default:
	// 20/30d. Together with the 60 of Config.Streak and the 20 of one known device, that makes at
	// most 100 in a row.
	Streak []window.Limit

	// Site is the level of failures across the whole service at which the alarm switches on; the
	// default is 1000/1h. Max is at most 10^7. While the alarm is on, unknown devices whose address
	// has failed twice need a challenge. See
	// https://github.com/slidegate/slidegate/blob/main/docs/login.md#attacks-on-the-whole-site.
	Site window.Limit

	// Switched is called when this process switches the alarm on or off. Attempts wait for
	// Switched, so it must return quickly. It must not use the guard.
	Switched func(Alarm) `json:"-"`
}

const (
	maxPerHour = 100 // failures on one account: OWASP ASVS 4, 2.2.1
	maxName    = 45  // bytes, so that the names of the limiters fit into window's limit
	roundTrips = 5   // the most that an allowed Begin takes: one for each budget
	suspectMax = 2   // failures that an address may have while the alarm is on, because many users mistype once
)

// limits returns the limits of every budget that the guard has.
func (cfg Config) limits() map[Budget][]window.Limit {
	perMinute, perHour, perDay := window.PerMinute, window.PerHour, window.PerDay
	address := []window.Limit{perMinute(20), perHour(50), perDay(100)}
	all := map[Budget][]window.Limit{
		BudgetAddress: orDefault(cfg.Address, address...),
		BudgetPair:    orDefault(cfg.Pair, perMinute(5), per10Minutes(7), perHour(10), perDay(20), perMonth(30)),
		BudgetAccount: orDefault(cfg.Account, per10Minutes(10), perHour(20), perDay(50)),
		BudgetStreak:  orDefault(cfg.Streak, perMonth(80)),
		BudgetTotal:   cfg.Total,
		BudgetDevice:  orDefault(cfg.Device, perMinute(5), perHour(10), perMonth(20)),
	}
	// Guards that have the same Name but different limits share an hourly count.
	if !slices.ContainsFunc(cfg.Total, func(l window.Limit) bool { return l.Per == time.Hour }) {
		all[BudgetTotal] = append(slices.Clone(cfg.Total), perHour(maxPerHour))
	}
	if c := cfg.Challenged; c != nil {
		// Challenged attempts have a share of the 100 failures in a row.
		all[BudgetStreak] = orDefault(cfg.Streak, perMonth(60))
		all[BudgetChallengedAddress] = orDefault(c.Address, address...)
		all[BudgetChallengedPair] = orDefault(c.Pair, perMinute(5), perHour(10))
		all[BudgetChallengedAccount] = orDefault(c.Account, per10Minutes(5), perHour(10), perDay(20))
		all[BudgetChallengedStreak] = orDefault(c.Streak, perMonth(20))
		for _, l := range all[BudgetAddress] {
			l.Max = min(suspectMax, l.Max)
			all[BudgetSite] = append(all[BudgetSite], l)
		}
	}
	return all
}

func per10Minutes(failures int64) window.Limit {
	return window.Limit{Max: failures, Per: 10 * time.Minute}
}

func perMonth(failures int64) window.Limit {
	return window.Limit{Max: failures, Per: 30 * 24 * time.Hour}
}

// orDefault returns limits, or defaults if limits is nil.
func orDefault(limits []window.Limit, defaults ...window.Limit) []window.Limit {
	if limits == nil {
		return defaults
	}
	return limits
}

// limiter returns the configuration of a budget's limiter.
func (cfg Config) limiter(of Budget, limits []window.Limit) window.Config {
	c := window.Config{
		Name: cfg.Name + "." + string(of), Limits: limits, Secret: cfg.Secret,
		Now: cfg.Now, Timeout: cfg.roundTrip(), Observe: cfg.Observe, OnDenied: cfg.OnDenied,
	}
	if cfg.Fallback != nil {
		c.Fallback = cfg.Fallback.Limiter(of)
	}
	return c
}

// roundTrip returns the timeout of one round trip.
func (cfg Config) roundTrip() time.Duration {
	if cfg.Timeout < 0 {
		return cfg.Timeout
	}
	return max(1, cmp.Or(cfg.Timeout, time.Second)/roundTrips)
}

// siteAlarm creates the alarm for the whole service, whose limiter comes from in.
func (cfg Config) siteAlarm(in store) (*siteAlarm, error) {
	limit := cmp.Or(cfg.Challenged.Site, window.PerHour(1000))
	shared, err := in.ar1(ar1.Config{
		Name: cfg.Name + "." + string(BudgetSite), Limits: []window.Limit{limit}, CountDenied: true, Secret: cfg.Secret, // CountDenied keeps a full level full
		Now: cfg.Now, Timeout: cfg.roundTrip(), Observe: cfg.Observe,
	})
	if err != nil {
		return nil, err
	}
	half := window.Limit{Max: 1, Per: max(time.Millisecond, (limit.Per / 2).Truncate(time.Millisecond))}
	denials, err := window.NewLocal(window.Config{Name: cfg.Name + ".denials", Limits: []window.Limit{half}, Now: cfg.Now, MaxEvents: int(limit.Max)})
	s := &siteAlarm{shared: shared, limit: limit, denials: denials, onSwitch: cfg.Challenged.Switched, now: time.Now, inMemory: in.inMemory}
	if cfg.Now != nil {
		s.now = cfg.Now
	}
	return s, err
}

// check returns an error if Name, Fallback or Challenged is invalid. The limits are checked when
// their limiters are created.
func (cfg Config) check() error {
	switch {
	case cfg.Name == "":
		return errors.New("slidegate: login guard without a Name; give it one, because guards with the same Name share their counts")
	case len(cfg.Name) > maxName:
		return fmt.Errorf("slidegate: login guard name %.80q has %d bytes; choose 1 to %d", cfg.Name, len(cfg.Name), maxName)
	case cfg.Fallback != nil && cfg.Fallback.budgets == nil:
		return fmt.Errorf("slidegate: login guard %q has an uninitialized Fallback; create it with New or NewLocal", cfg.Name)
	case cfg.Fallback != nil && cfg.Challenged != nil && cfg.Fallback.alarm == nil:
		return fmt.Errorf("slidegate: login guard %q has challenges, but its Fallback has none; set Challenged there too", cfg.Name)
	}
	return nil
}

// checkTotal returns an error if Total allows too much, or if the other limits leave too little of
// it for known devices.
func (cfg Config) checkTotal(limits map[Budget][]window.Limit) error {
	if most := maxIn(time.Hour, limits[BudgetTotal]); most > maxPerHour {
		return fmt.Errorf("slidegate: login guard %q has a Total that allows %.0f failures in an hour; choose at most %d/1h (ASVS 4, 2.2.1)", cfg.Name, most, maxPerHour)
	}
	for _, total := range limits[BudgetTotal] {
		account, challenged := maxIn(total.Per, limits[BudgetAccount]), 0.0
		if cfg.Challenged != nil {
			challenged = maxIn(total.Per, limits[BudgetChallengedAccount])
		}
		most := float64(total.Max * 9 / 10) // what unknown devices can use up
		switch {
		case account > most:
			return fmt.Errorf("slidegate: login guard %q has Account limits that allow %.0f failures in %v, and a Total that allows %d; let Account allow at most %.0f, so that known devices have the rest",
				cfg.Name, account, total.Per, total.Max, most)
		case account+challenged > most:
			return fmt.Errorf("slidegate: login guard %q has Account limits that allow %.0f failures in %v, Challenged.Account limits that allow %.0f, and a Total that allows %d; let both together allow at most %.0f, so that known devices have the rest",
				cfg.Name, account, total.Per, challenged, total.Max, most)
		}
	}
	return nil
}

// maxIn returns the most units that the limits allow in any interval of length span. A limit allows
// Max in each of the windows that cover the interval.
func maxIn(span time.Duration, limits []window.Limit) float64 {
	most := math.Inf(1)
	for _, l := range limits {
		most = min(most, float64(l.Max)*math.Ceil(float64(span)/float64(l.Per)))
	}
	return most
}
