package window

import (
	"crypto/fips140"
	"errors"
	"fmt"
	"slices"
	"time"
)

// newLimiter refuses a configuration that could not be kept, naming the value and the remedy.
func newLimiter(cfg Config) (*Limiter, error) {
	if err := checkName(cfg.Name); err != nil {
		return nil, fmt.Errorf("slidegate: %w", err)
	}
	if err := checkConfig(cfg); err != nil {
		return nil, fmt.Errorf("slidegate: limiter %q has %w", cfg.Name, err)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Second
	}
	cfg.Limits, cfg.Secret = slices.Clone(cfg.Limits), slices.Clone(cfg.Secret)
	return &Limiter{cfg: cfg, prefix: cfg.Name + ":{"}, nil
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

func checkConfig(cfg Config) error {
	if len(cfg.Limits) == 0 {
		return errors.New("no limits; give at least one, such as window.PerHour(5)")
	}
	if len(cfg.Limits) > maxLimits {
		return fmt.Errorf("%d limits; one record holds at most %d", len(cfg.Limits), maxLimits)
	}
	if cfg.Secret != nil && len(cfg.Secret) == 0 {
		return errors.New("an empty Secret; give it bytes, or leave it nil to have events readable in keys")
	}
	if fips140.Enabled() && cfg.Secret != nil && len(cfg.Secret) < 14 {
		return fmt.Errorf("a Secret of %d bytes; FIPS mode asks for at least 14", len(cfg.Secret))
	}
	if cfg.Fallback != nil && cfg.Fallback.cfg.Fallback != nil {
		return fmt.Errorf("a Fallback %q that has a Fallback too; leave out one of them", cfg.Fallback.cfg.Name)
	}
	seen := map[time.Duration]Limit{}
	for i, l := range cfg.Limits {
		if err := l.check(cfg.CountDenied); err != nil {
			return fmt.Errorf("limit %d with %w", i+1, err)
		}
		if other, twice := seen[l.Per]; twice {
			return fmt.Errorf("two limits with a Per of %v, %v and %v; keep the tighter one", l.Per, other, l)
		}
		seen[l.Per] = l
	}
	return nil
}

// nowMS is the time by Config.Now, in ms since 1970.
func (l *Limiter) nowMS() (int64, error) {
	now := l.cfg.Now()
	ms := now.UnixMilli()
	if ms < 0 || ms >= maxTime {
		return 0, fmt.Errorf("the clock of Config.Now reads %v; it must lie between 1970 and 6429", now)
	}
	return ms, nil
}

const (
	maxTime   = 1 << 47 // the first ms that the script refuses, in the year 6429
	maxLimits = 31      // sections that a record can hold
)
