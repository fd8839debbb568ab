package login

import (
	"fmt"
	"math"
	"time"

	"github.com/slidegate/slidegate/window"
)

// Config says what a Guard allows. Name is needed, and for New a Secret; what is nil of the limits is as the defaults are. Where a budget has
// several limits, all of them hold: the more failures, the longer the wait. Each default says what it comes from.
type Config struct {
	// Name begins the names of the guard's limiters, and so of their keys, such as login.account: up to 56 bytes, as in window.Config.
	Name string

	// Secret hides accounts and addresses in keys, as in window.Config: at least 16 random bytes.
	Secret []byte

	// Address is what one address may fail: by default 20/1m, 50/1h and 100/1d, on any accounts. It is one layer, and never the only one; its limits
	// are for short bursts and for long periods (OWASP Credential Stuffing Prevention). Auth0 has 100 a day.
	Address []window.Limit

	// Pair is what one address may fail on one account since it last logged into it: by default 5/1m, 7/10m, 10/1h and 20/1d. The wait so grows
	// from some seconds to an hour (NIST SP 800-63B rev. 3, 5.2.2: such as 30 s to 1 h). Laravel Fortify has 5 a minute. 20 a day keep
	// one address from using up an account for others.
	Pair []window.Limit

	// Account is what all unknown devices together may fail on one account, whatever succeeds in between: by default 10/10m, 20/1h and 50/1d.
	// It is what holds a botnet (OWASP Authentication: count by account, not by address). Auth0, Devise and others have 10 to 20. New refuses more than 90
	// in an hour: with those of known devices they are at most 100 (ASVS 4, 2.2.1).
	Account []window.Limit

	// Streak is what unknown devices may fail on one account with no login of anybody in between: by default 80/30d, so that with 20 of
	// a known device it is at most 100 in a row (NIST SP 800-63B, 5.2.2 and rev. 4, 3.2.2). Rev. 4 has the password then disabled: do it when an attempt
	// is denied for it, as after the 30 days the guard allows more.
	Streak []window.Limit

	// Device is what one known device may fail on its account since it last logged in: by default 5/1m, 10/1h and 20/30d. All of one account may
	// fail 100 in an hour, less what Account allows in it (OWASP: device cookies; ASVS 4, 2.2.1). A device that has used it up is as an unknown one.
	Device []window.Limit

	// Now, Timeout and Observe are as in window.Config. Each of the up to four steps of an attempt has a Timeout of its own.
	Now     func() time.Time `json:"-"`
	Timeout time.Duration
	Observe func(window.Observation) `json:"-"`

	// Fallback decides while Redis cannot answer, typically one from NewLocal: each process then allows what the Fallback's limits say, beside what
	// Redis allowed before. Without it, Begin is an error then, and nobody can log in.
	Fallback *Guard `json:"-"`
}

var (
	addressLimits = []window.Limit{window.PerMinute(20), window.PerHour(50), window.PerDay(100)}
	pairLimits    = []window.Limit{window.PerMinute(5), {Max: 7, Per: 10 * time.Minute}, window.PerHour(10), window.PerDay(20)}
	accountLimits = []window.Limit{{Max: 10, Per: 10 * time.Minute}, window.PerHour(20), window.PerDay(50)}
	streakLimits  = []window.Limit{{Max: 80, Per: 30 * 24 * time.Hour}}
	deviceLimits  = []window.Limit{window.PerMinute(5), window.PerHour(10), {Max: 20, Per: 30 * 24 * time.Hour}}
)

const (
	perHour   = 100 // failures on one account: ASVS 4, 2.2.1
	known     = 10  // of them, that at least are left to known devices
	minSecret = 16  // bytes
)

// limited is a budget with its limits.
type limited struct {
	of     Budget
	limits []window.Limit
}

func (cfg Config) budgets() ([]limited, error) {
	account := or(cfg.Account, accountLimits)
	inAnHour := mostInAnHour(account)
	switch {
	case inAnHour > perHour-known:
		return nil, fmt.Errorf("slidegate: login guard %q has Account limits that allow %d failures in an hour; add one such as 20/1h: all must be at most %d, and with those of known devices %d (ASVS 4, 2.2.1)",
			cfg.Name, inAnHour, perHour-known, perHour)
	case cfg.Fallback != nil && cfg.Fallback.limiters == nil:
		return nil, fmt.Errorf("slidegate: login guard %q has a Fallback that comes neither from New nor from NewLocal; make it by one of them", cfg.Name)
	}
	return []limited{
		{Address, or(cfg.Address, addressLimits)},
		{Pair, or(cfg.Pair, pairLimits)},
		{Account, account},
		{Streak, or(cfg.Streak, streakLimits)},
		{Device, or(cfg.Device, deviceLimits)},
		{Devices, []window.Limit{window.PerHour(perHour - inAnHour)}},
	}, nil
}

func or(limits, defaults []window.Limit) []window.Limit {
	if limits == nil {
		return defaults
	}
	return limits
}

// mostInAnHour is how many units the limits admit in any hour, if they are sound: an hour lies within as many windows as it takes to cover it.
func mostInAnHour(limits []window.Limit) int64 {
	most := math.Inf(1)
	for _, l := range limits {
		windows := math.Ceil(float64(time.Hour) / float64(max(1, l.Per)))
		most = min(most, float64(l.Max)*windows)
	}
	if len(limits) == 0 {
		return 0
	}
	return int64(min(most, math.MaxInt32))
}

func (cfg Config) limiter(b limited) window.Config {
	c := window.Config{
		Name: cfg.Name + "." + string(b.of), Limits: b.limits, Secret: cfg.Secret,
		Now: cfg.Now, Timeout: cfg.Timeout, Observe: cfg.Observe,
	}
	if cfg.Fallback != nil {
		c.Fallback = cfg.Fallback.limiters[b.of]
	}
	return c
}

func (cfg Config) errSecret() error {
	return fmt.Errorf("slidegate: login guard %q has a Secret of %d bytes; give it at least %d random ones, so that keys do not tell accounts and addresses", cfg.Name, len(cfg.Secret), minSecret)
}
