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

// Config says what a Guard allows. Name is needed, and for New a Secret; what is nil of the limits is as the defaults are. Where a budget has
// several limits, all of them hold: the more failures, the longer the wait. Each default says what it comes from.
type Config struct {
	// Name begins the names of the guard's limiters, and so of their keys, such as login.account: 1 to 45 bytes, as in window.Config.
	Name string

	// Secret hides accounts and addresses in keys, as in window.Config: at least 16 random bytes. Another Secret begins all counts anew.
	Secret []byte `json:"-"`

	// Address is what one address may fail: by default 20/1m, 50/1h and 100/1d, on any accounts. It is one layer, and never the only one; its limits
	// are for short bursts and for long periods (OWASP Credential Stuffing Prevention). Auth0 has 100 a day.
	Address []window.Limit

	// Pair is what one address may fail on one account since it last logged into it: by default 5/1m, 7/10m, 10/1h, 20/1d and 30/30d. For the first ten
	// failures the wait so grows from some seconds to an hour (NIST SP 800-63B rev. 3, 5.2.2: such as 30 s to 1 h). Laravel Fortify has 5 a minute, and Auth0
	// 10. The two longer ones keep one address from using up an account for others.
	Pair []window.Limit

	// Account is what all unknown devices together may fail on one account, whatever succeeds in between: by default 10/10m, 20/1h and 50/1d.
	// It is what holds a botnet (OWASP Authentication: count by account, not by address). Devise has 20. In the time of each limit of Total it must
	// allow at most nine tenths of what that does, so that known devices have the rest.
	Account []window.Limit

	// Streak is what unknown devices may fail on one account with no login of anybody in between: by default 80/30d, so that with the 20 of
	// one known device it is at most 100 in a row (NIST SP 800-63B rev. 3, 5.2.2 and rev. 4, 3.2.2).
	Streak []window.Limit

	// Total is what may fail on one account, from wherever: by default 100/1h, the most that there may be (ASVS 4, 2.2.1), which is added if it has no limit for
	// an hour. It holds however limits are changed, as long as Name and Secret stay.
	Total []window.Limit

	// Device is what one known device may fail on its account since it last logged in: by default 5/1m, 10/1h and 20/30d (OWASP: device cookies). A device
	// that has used it up is as an unknown one.
	Device []window.Limit

	// Challenged is for services with challenges: denied attempts then say whether a challenge would help, and BeginChallenged admits who solved one. There is
	// an alarm then: see Challenged.Site. The default of Streak is 60/30d then. nil is a service without challenges.
	Challenged *Challenged

	// Now is as in window.Config.
	Now func() time.Time `json:"-"`

	// Observe is as in window.Config. It is called for each budget that is asked, and not for what is given back. With Challenged it is also called for the
	// level of the alarm, as the limiter Name + ".site", which denies while the level is full.
	Observe func(ctx context.Context, o window.Observation) `json:"-"`

	// Timeout is how long Redis may take for an attempt that Begin allows, a third for each of three round trips: 0 is a second. A denial can take two round
	// trips more, and a known device that has used up its budget takes one more. Less than 0 leaves it to the deadline of the context, which no client may choose then:
	// see Begin.
	Timeout time.Duration

	// Fallback decides while Redis cannot answer, typically one from NewLocal: each process then allows what the Fallback's limits say, beside what
	// Redis allowed before. Without it, Begin is an error then, and nobody can log in.
	Fallback *Guard `json:"-"`
}

const month = 30 * 24 * time.Hour

var (
	addressLimits = []window.Limit{window.PerMinute(20), window.PerHour(50), window.PerDay(100)}
	pairLimits    = []window.Limit{window.PerMinute(5), {Max: 7, Per: 10 * time.Minute}, window.PerHour(10), window.PerDay(20), {Max: 30, Per: month}}
	accountLimits = []window.Limit{{Max: 10, Per: 10 * time.Minute}, window.PerHour(20), window.PerDay(50)}
	siteLimit     = window.PerHour(1000)
	deviceLimits  = []window.Limit{window.PerMinute(5), window.PerHour(10), {Max: 20, Per: month}}
)

const (
	perHour    = 100 // failures on one account: ASVS 4, 2.2.1
	minSecret  = 16  // bytes
	mostName   = 45  // bytes, so that the names of budgets fit behind it
	roundTrips = 3   // of Begin
	suspect    = 2   // failures of an address that the alarm does not stop, as many people mistype once
)

// limited is a budget with its limits.
type limited struct {
	of     Budget
	limits []window.Limit
}

func (cfg Config) budgets() []limited {
	return append([]limited{
		{Address, or(cfg.Address, addressLimits)},
		{Pair, or(cfg.Pair, pairLimits)},
		{Account, or(cfg.Account, accountLimits)},
		{Streak, or(cfg.Streak, cfg.streakLimits())},
		{Total, cfg.total()},
		{Device, or(cfg.Device, deviceLimits)},
	}, cfg.Challenged.budgets()...)
}

// streakLimits returns the default, which leaves challenged attempts their part of 100 failures in a row.
func (cfg Config) streakLimits() []window.Limit {
	if cfg.Challenged != nil {
		return []window.Limit{{Max: 60, Per: month}}
	}
	return []window.Limit{{Max: 80, Per: month}}
}

func or(limits, defaults []window.Limit) []window.Limit {
	if limits == nil {
		return defaults
	}
	return limits
}

// total has a limit for an hour, so that guards with other limits share its count.
func (cfg Config) total() []window.Limit {
	if slices.ContainsFunc(cfg.Total, func(l window.Limit) bool { return l.Per == time.Hour }) {
		return cfg.Total
	}
	return append(slices.Clone(cfg.Total), window.PerHour(perHour))
}

func (cfg Config) limiter(b limited) window.Config {
	c := window.Config{
		Name: cfg.Name + "." + string(b.of), Limits: b.limits, Secret: cfg.Secret,
		Now: cfg.Now, Timeout: cfg.roundTrip(), Observe: cfg.Observe,
	}
	if cfg.Fallback != nil {
		c.Fallback = cfg.Fallback.limiters[b.of]
	}
	return c
}

// roundTrip is how long one may take.
func (cfg Config) roundTrip() time.Duration {
	if cfg.Timeout < 0 {
		return cfg.Timeout
	}
	return max(1, cmp.Or(cfg.Timeout, time.Second)/roundTrips)
}

// site returns what watches the whole service.
func (cfg Config) site(in store) (*site, error) {
	limit := cmp.Or(cfg.Challenged.Site, siteLimit)
	shared, err := in.ar1(ar1.Config{
		Name: cfg.Name + "." + string(Site), Limits: []window.Limit{limit}, CountDenied: true, Secret: cfg.Secret, // CountDenied: a full level stays full
		Now: cfg.Now, Timeout: cfg.roundTrip(), Observe: cfg.Observe,
	})
	if err != nil {
		return nil, err
	}
	stopped, err := window.NewLocal(window.Config{Name: "stopped", Limits: []window.Limit{{Max: 1, Per: max(time.Millisecond, (limit.Per / 2).Truncate(time.Millisecond))}}, Now: cfg.Now, MaxEvents: int(limit.Max)})
	s := &site{shared: shared, limit: limit, stopped: stopped, changed: cfg.Challenged.Switched, now: time.Now, inMemory: in.inMemory}
	if cfg.Now != nil {
		s.now = cfg.Now
	}
	return s, err
}

// suspectLimits returns the limits of an address while the alarm is on.
func suspectLimits(address []window.Limit) []window.Limit {
	limits := slices.Clone(address)
	for i := range limits {
		limits[i].Max = min(suspect, limits[i].Max)
	}
	return limits
}

func (cfg Config) check() error {
	switch {
	case cfg.Name == "":
		return errors.New("slidegate: login guard without a Name; give it one, as guards of one Name share their counts")
	case len(cfg.Name) > mostName:
		return fmt.Errorf("slidegate: login guard name %.80q has %d bytes; choose 1 to %d", cfg.Name, len(cfg.Name), mostName)
	case cfg.Fallback != nil && cfg.Fallback.limiters == nil:
		return fmt.Errorf("slidegate: login guard %q has a Fallback that comes neither from New nor from NewLocal; make it by one of them", cfg.Name)
	case cfg.Fallback != nil && cfg.Challenged != nil && !cfg.Fallback.challenges():
		return fmt.Errorf("slidegate: login guard %q has challenges, and its Fallback has none; give that a Challenged, too", cfg.Name)
	}
	return nil
}

// checkTotal checks what limits that are sound leave to known devices.
func (cfg Config) checkTotal() error {
	total := cfg.total()
	if most := mostIn(time.Hour, total); most > perHour {
		return fmt.Errorf("slidegate: login guard %q has a Total that allows %.0f failures in an hour; choose at most %d/1h (ASVS 4, 2.2.1)", cfg.Name, most, perHour)
	}
	for _, l := range total {
		if err := cfg.checkReserve(l); err != nil {
			return err
		}
	}
	return nil
}

// checkReserve returns an error if strangers can use up more than nine tenths of a limit of the total.
func (cfg Config) checkReserve(total window.Limit) error {
	account, challenged := mostIn(total.Per, or(cfg.Account, accountLimits)), 0.0
	if cfg.Challenged != nil {
		challenged = mostIn(total.Per, cfg.Challenged.account())
	}
	most := float64(total.Max * 9 / 10)
	switch {
	case account > most:
		return fmt.Errorf("slidegate: login guard %q has Account limits that allow %.0f failures in %v, and a Total that allows %d; have Account allow at most %.0f, so that known devices have the rest",
			cfg.Name, account, total.Per, total.Max, most)
	case account+challenged > most:
		return fmt.Errorf("slidegate: login guard %q has Account limits that allow %.0f failures in %v, Challenged.Account limits that allow %.0f, and a Total that allows %d; have both together allow at most %.0f, so that known devices have the rest",
			cfg.Name, account, total.Per, challenged, total.Max, most)
	}
	return nil
}

// mostIn returns how many units the limits admit in any span of time. It lies within as many windows as it takes to cover it.
func mostIn(span time.Duration, limits []window.Limit) float64 {
	most := math.Inf(1)
	for _, l := range limits {
		most = min(most, float64(l.Max)*math.Ceil(float64(span)/float64(l.Per)))
	}
	return most
}

func (cfg Config) errSecret() error {
	return fmt.Errorf("slidegate: login guard %q has a Secret of %d bytes; give it at least %d random ones, so that keys do not tell accounts and addresses", cfg.Name, len(cfg.Secret), minSecret)
}
