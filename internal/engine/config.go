package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
)

// Config is what the configurations of all limiters have in common. See window.Config for what users set.
type Config struct {
	Kind         string // of the record, the last part of each key
	Script       string // source of the script that decides on Redis
	Name         string
	Limits       []Limit
	CountDenied  bool
	Secret       []byte
	Clock        clock.Clock
	Timeout      time.Duration // of one call to Redis; below 0: none
	MaxUnits     int64         // the most units of one call that the script takes
	SomeSuffices bool          // the replies to single attempts follow from that to the verb some: see Reply.rewind
	Fallback     *Limiter
	DenialCache  int
	Notify       func(context.Context, Event) // may be nil; the context is that of the call that noticed
}

// Limit is one limit of a limiter.
type Limit struct {
	Text       string // as people read it
	Max        int64
	Per        time.Duration
	Resolution time.Duration // 0: the limit has none, and the script takes none
	Fault      error         // what is wrong with the limit, and the remedy
}

const (
	maxLimits      = 31 // sections that a record can hold
	maxPer         = 36_525 * 24 * time.Hour
	minSecret      = 16 // bytes; FIPS mode refuses fewer than 14
	defaultTimeout = time.Second
)

// check refuses a configuration that could not work. The error names the value and the remedy.
func (cfg *Config) check() error {
	if err := checkName(cfg.Name); err != nil {
		return fmt.Errorf("slidegate: %w", err)
	}
	for _, check := range []func() error{cfg.checkFields, cfg.checkFallback, cfg.checkDenialCache, cfg.checkLimits} {
		if err := check(); err != nil {
			return fmt.Errorf("slidegate: limiter %q has %w", cfg.Name, err)
		}
	}
	return nil
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

func (cfg *Config) checkFields() error {
	switch {
	case len(cfg.Limits) == 0:
		return errors.New("no limits; give at least one, such as window.PerHour(5)")
	case len(cfg.Limits) > maxLimits:
		return fmt.Errorf("%d limits; one record holds at most %d", len(cfg.Limits), maxLimits)
	case cfg.Secret != nil && len(cfg.Secret) < minSecret:
		return fmt.Errorf("a Secret of %d bytes; give it at least %d random ones, or leave it nil to have events readable in keys", len(cfg.Secret), minSecret)
	}
	return nil
}

func (cfg *Config) checkFallback() error {
	switch {
	case cfg.Fallback == nil:
		return nil
	case cfg.Fallback.store == nil:
		return errors.New("a Fallback that comes neither from New nor from NewLocal; make it by one of them")
	case cfg.Fallback.Fallback != nil:
		return fmt.Errorf("a Fallback %q that has a Fallback too; leave out one of them", cfg.Fallback.Name)
	}
	return nil
}

func (cfg *Config) checkDenialCache() error {
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

func (cfg *Config) checkLimits() error {
	seen := map[time.Duration]Limit{}
	for i, l := range cfg.Limits {
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

// checkMemory refuses what makes no sense for a limiter in memory.
func (cfg *Config) checkMemory() error {
	switch {
	case cfg.Fallback != nil:
		return fmt.Errorf("slidegate: limiter %q is in memory and has a Fallback, which it never needs; leave it out", cfg.Name)
	case cfg.DenialCache != 0:
		return fmt.Errorf("slidegate: limiter %q is in memory and has a DenialCache, which would save it nothing; leave it out", cfg.Name)
	}
	return nil
}

// CheckRange returns what is wrong with a Max or a Per, or nil. Text is maxUnits as people read it.
func CheckRange(units, maxUnits int64, text string, per time.Duration) error {
	if units < 1 || units > maxUnits {
		return fmt.Errorf("a Max of %d; choose 1 to %s units", units, text)
	}
	if per > 0 && per < time.Microsecond {
		return fmt.Errorf("a Per of %v; did you forget time.Second? A Per is in whole milliseconds, from one to 100 years", per)
	}
	if per < time.Millisecond || per > maxPer || per%time.Millisecond != 0 {
		return fmt.Errorf("a Per of %v; choose whole milliseconds, from one to 100 years", per)
	}
	return nil
}

// args returns the arguments that the script takes for the limit.
func (l Limit) args() []string {
	args := []string{integer(l.Per.Milliseconds()), integer(l.Max)}
	if l.Resolution != 0 {
		args = append(args, integer(l.Resolution.Milliseconds()))
	}
	return args
}

func integer(n int64) string { return strconv.FormatInt(n, 10) }
