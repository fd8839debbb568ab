package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/window"
)

// limiter is one of the library's: on Redis, or in memory.
type limiter interface {
	AllowN(ctx context.Context, event string, n int64) (window.Decision, error)
	Reset(ctx context.Context, event string) error
}

// estimator says how limits count: by windows, or by levels.
type estimator struct{ given, levels bool }

// Decode reads the flag.
func (e *estimator) Decode(c *kong.DecodeContext) error {
	if isMissing(c) {
		return errors.New("its value is missing; write window or ar1")
	}
	name := c.Scan.Pop().String()
	switch {
	case name != "window" && name != "ar1":
		return fmt.Errorf("there is no estimator %q; choose window or ar1", name)
	case e.given:
		return errors.New("it is given twice; replay twice to compare both")
	}
	e.given, e.levels = true, name == "ar1"
	return nil
}

func (e estimator) String() string {
	if e.levels {
		return "ar1"
	}
	return "window"
}

// check refuses limits that the estimator cannot count by.
func (e estimator) check(limits limits) error {
	for _, l := range limits {
		text, width, _ := strings.Cut(l.String(), "@")
		switch {
		case e.levels && l.Resolution != 0:
			return fmt.Errorf("%s@%s has slices, and a level of --estimator ar1 has none; write %s", text, width, text)
		case e.levels && l.Max > mostOfLevel:
			return fmt.Errorf("%s is too much for --estimator ar1; choose at most %d units, or --estimator window", text, mostOfLevel)
		}
	}
	return nil
}

const mostOfLevel = 10_000_000 // the largest Max of ar1

// limiter makes a limiter in Redis, or in memory without a client.
func (e estimator) limiter(client rueidis.Client, name string, limits limits, now func() time.Time) (limiter, error) {
	if e.levels {
		cfg := ar1.Config{Name: name, Limits: limits, Now: now, Timeout: patience}
		if client == nil {
			return ar1.NewLocal(cfg)
		}
		return ar1.New(client, cfg)
	}
	cfg := window.Config{Name: name, Limits: limits, Now: now, Timeout: patience}
	if client == nil {
		return window.NewLocal(cfg)
	}
	return window.New(client, cfg)
}

// remembers is at most how long a limit remembers a unit: a window for Per, and a level until it is below 1/4.
func (e estimator) remembers(l window.Limit) time.Duration {
	if e.levels {
		return time.Duration(min(float64(l.Per)*math.Log(4*float64(l.Max+1)), math.MaxInt64/2))
	}
	return l.Per
}

// text is a limit as a person reads it.
func (e estimator) text(l window.Limit) string {
	text := l.String()
	if e.levels {
		text, _, _ = strings.Cut(text, "@")
	}
	return text
}

// needless returns another of the limits that keeps this one from ever denying: in a longer time it holds no more. Or it returns nothing.
func (e estimator) needless(l window.Limit, limits limits) string {
	late := time.Duration(0) // a limit in slices forgets a unit up to a slice late
	if _, _, slices := strings.Cut(e.text(l), "@"); slices {
		late = max(l.Per/60, l.Resolution)
	}
	for _, other := range limits {
		if other != l && other.Max <= l.Max && other.Per >= l.Per+late {
			return e.text(other)
		}
	}
	return ""
}
