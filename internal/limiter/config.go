package limiter

import (
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/lua"
)

// Config holds the settings that all kinds of limiters have in common. window.Config documents
// those that users set.
type Config struct {
	Kind        string                        // the kind of record, which is the last part of each key
	Script      func(verb string) *lua.Script // returns the script that Redis runs for a verb
	File        string                        // the name of the script, for messages
	Name        string
	Secret      []byte
	Clock       clock.Clock
	Timeout     time.Duration // for one call to Redis; no timeout if negative
	MaxUnits    int64         // the most units that one script call accepts
	DenialCache int
	MaxEvents   int // in memory; 0 means no bound

	CountDenied   bool
	MergeAsSome   bool // merged attempts use the verb some, which takes several keys, and decode computes the individual replies
	AllowWhenFull bool // allows new events when memory is full

	Notify health.Report      // may be nil; the context is that of the call that reports
	Text   func(Limit) string // formats a limit for messages; nil means Max/Per
}

// text formats a limit for messages.
func (cfg *Config) text(l Limit) string {
	if cfg.Text != nil {
		return cfg.Text(l)
	}
	return fmt.Sprintf("%d/%s", l.Max, clock.Format(clock.Milliseconds(l.Per)))
}

const maxPer = 36_525 * 24 * time.Hour

// DefaultTimeout is the Timeout of a limiter on Redis whose configuration sets none.
const DefaultTimeout = 250 * time.Millisecond

// check returns an error if the configuration is invalid. The error names the value and the remedy.
func (cfg *Config) check(limits []Limit) (err error) {
	if err := checkName(cfg.Name); err != nil {
		return fmt.Errorf("slidegate: %w", err)
	}
	switch {
	case cfg.Secret != nil && len(cfg.Secret) < keys.MinSecret:
		err = fmt.Errorf("a Secret of %d bytes; give it at least %d random ones, or leave it nil to keep events readable in keys", len(cfg.Secret), keys.MinSecret)
	case cfg.MaxEvents < 0:
		err = fmt.Errorf("a MaxEvents of %d; say how many events to hold in memory, or 0 for no bound", cfg.MaxEvents)
	case cfg.AllowWhenFull && cfg.MaxEvents == 0:
		err = errors.New("AllowWhenFull without MaxEvents; say how many events to hold in memory, or leave it out")
	case cfg.DenialCache < 0:
		err = fmt.Errorf("a DenialCache of %d; say how many denied events to remember, or 0 for none", cfg.DenialCache)
	case cfg.DenialCache > 0 && cfg.CountDenied:
		err = errors.New("CountDenied and a DenialCache; only Redis can count a denial, so leave one of them out")
	case cfg.DenialCache > 0 && cfg.Clock.Now != nil:
		err = errors.New("its own clock and a DenialCache, which needs real time; leave out Now or the DenialCache")
	default:
		err = cfg.checkLimits(limits)
	}
	if err != nil {
		return fmt.Errorf("slidegate: limiter %q has %w", cfg.Name, err)
	}
	return nil
}

func checkName(name string) error {
	if len(name) < 1 || len(name) > keys.LongestName {
		return fmt.Errorf("limiter name %.80q has %d bytes; choose 1 to 64", name, len(name))
	}
	if i := keys.BadByte(name); i >= 0 {
		return fmt.Errorf("limiter name %q has the byte %q; use only A-Z a-z 0-9 . _ - and colon", name, name[i:i+1])
	}
	return nil
}

// CheckRange returns an error if units is not a valid Max, or per not a valid Per. The text is
// maxUnits, formatted for the error.
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
