package gate

import (
	"crypto/fips140"
	"errors"
	"fmt"
	"time"
)

// Config is what the configurations of all limiters have in common.
type Config[U any] struct {
	Name        string
	Limits      []Limit
	CountDenied bool
	Secret      []byte
	Clock       Clock
	Timeout     time.Duration
	Most        int64 // units of one call that the script takes
	Fallback    *Limiter[U]
	DenialCache int
	Observe     func(Observation[U])
	Usage       func(limit int, used, remaining int64, retryAfter, resetAfter time.Duration) U
	PerOf       func(U) time.Duration
}

// Limit is one of a limiter.
type Limit struct {
	Text       string // as a person reads it
	Max        int64
	Per        time.Duration
	Resolution time.Duration // 0: it has none, and its script takes none
	Fault      error         // what is wrong with it, and the remedy
}

const maxLimits = 31 // sections that a record can hold

// New refuses a configuration that could not be kept, naming the value and the remedy. Keys of the limiter end in kind.
func New[U any](cfg Config[U], kind string) (*Limiter[U], error) {
	if err := checkName(cfg.Name); err != nil {
		return nil, fmt.Errorf("slidegate: %w", err)
	}
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("slidegate: limiter %q has %w", cfg.Name, err)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Second
	}
	return &Limiter[U]{Config: cfg, prefix: cfg.Name + ":{", suffix: "}:" + kind}, nil
}

// NewLocal is New for a limiter in memory.
func NewLocal[U any](cfg Config[U], kind string) (*Limiter[U], error) {
	if cfg.Fallback != nil {
		return nil, fmt.Errorf("slidegate: limiter %q is in memory and has a Fallback, which it never needs; leave it out", cfg.Name)
	}
	if cfg.DenialCache != 0 {
		return nil, fmt.Errorf("slidegate: limiter %q is in memory and has a DenialCache, which would save it nothing; leave it out", cfg.Name)
	}
	return New(cfg, kind)
}

func checkName(name string) error {
	if len(name) < 1 || len(name) > 64 {
		return fmt.Errorf("limiter name %.80q has %d bytes; choose 1 to 64", name, len(name))
	}
	for i := range len(name) {
		if !nameByte(name[i]) {
			return fmt.Errorf("limiter name %q has the byte %q; use only A-Z a-z 0-9 . _ - and colon", name, name[i:i+1])
		}
	}
	return nil
}

func nameByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return c == '.' || c == '_' || c == '-' || c == ':'
}

func (cfg *Config[U]) check() error {
	switch {
	case len(cfg.Limits) == 0:
		return errors.New("no limits; give at least one, such as window.PerHour(5)")
	case len(cfg.Limits) > maxLimits:
		return fmt.Errorf("%d limits; one record holds at most %d", len(cfg.Limits), maxLimits)
	case cfg.Secret != nil && len(cfg.Secret) == 0:
		return errors.New("an empty Secret; give it bytes, or leave it nil to have events readable in keys")
	case fips140.Enabled() && cfg.Secret != nil && len(cfg.Secret) < 14:
		return fmt.Errorf("a Secret of %d bytes; FIPS mode asks for at least 14", len(cfg.Secret))
	case cfg.Fallback != nil && cfg.Fallback.State == nil:
		return errors.New("a Fallback that comes neither from New nor from NewLocal; make it by one of them")
	case cfg.Fallback != nil && cfg.Fallback.Fallback != nil:
		return fmt.Errorf("a Fallback %q that has a Fallback too; leave out one of them", cfg.Fallback.Name)
	}
	if err := cfg.checkDenialCache(); err != nil {
		return err
	}
	return checkLimits(cfg.Limits)
}

func (cfg *Config[U]) checkDenialCache() error {
	switch {
	case cfg.DenialCache < 0:
		return fmt.Errorf("a DenialCache of %d; say how many denied events to remember, or 0 for none", cfg.DenialCache)
	case cfg.DenialCache > 0 && cfg.CountDenied:
		return errors.New("CountDenied and a DenialCache; a denial that is to be counted cannot be answered without Redis, so leave out one of them")
	case cfg.DenialCache > 0 && cfg.Clock.Now != nil:
		return errors.New("a clock of its own and a DenialCache, which goes by real time; leave out Now or the DenialCache")
	}
	return nil
}

func checkLimits(limits []Limit) error {
	seen := map[time.Duration]Limit{}
	for i, l := range limits {
		if l.Fault != nil {
			return fmt.Errorf("limit %d with %w", i+1, l.Fault)
		}
		if other, twice := seen[l.Per]; twice {
			return fmt.Errorf("two limits with a Per of %v, %s and %s; keep the tighter one", l.Per, other.Text, l.Text)
		}
		seen[l.Per] = l
	}
	return nil
}

// CheckRange says what is wrong with a Max or a Per, if anything is.
func CheckRange(units, mostUnits int64, text string, per time.Duration) error {
	if units < 1 || units > mostUnits {
		return fmt.Errorf("a Max of %d; choose 1 to %s units", units, text)
	}
	if per < time.Millisecond || per > maxPer || per%time.Millisecond != 0 {
		return fmt.Errorf("a Per of %v; choose whole milliseconds, from one to 100 years", per)
	}
	return nil
}

const maxPer = 36_525 * 24 * time.Hour

// Clock is what time it is, in whole units of the records.
type Clock struct {
	Now  func() time.Time // nil: what the server says, or what passes for this process
	Unit func(time.Time) int64
	Time func(int64) time.Time // the inverse of Unit
	End  int64                 // the first that the scripts refuse
	Year int                   // in which that is
}

// Read is the time by Now.
func (c *Clock) Read() (int64, error) {
	now := c.Now()
	t, year := c.Unit(now), now.UTC().Year() // a time that is far away has no Unit
	if t < 0 || t >= c.End || year < 1970 || year > c.Year {
		return 0, fmt.Errorf("the clock of Config.Now reads %v; it must lie between 1970 and %d", now, c.Year)
	}
	return t, nil
}
