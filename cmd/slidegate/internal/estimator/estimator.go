// Package estimator creates limiters of the window and ar1 packages, and describes how the two
// differ.
package estimator

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/window"
)

// Limiter is a limiter of package window or ar1. It keeps its counts in Redis or in memory.
type Limiter interface {
	AllowN(ctx context.Context, event string, n int64) (window.Decision, error)
	Reset(ctx context.Context, event string) error
}

// Estimator selects the method by which limits count. The zero value means Window.
type Estimator string

// The estimators.
const (
	Window Estimator = "window" // sliding windows
	AR1    Estimator = "ar1"    // decaying levels
)

// String returns the name of the estimator.
func (e Estimator) String() string {
	if e == "" {
		return string(Window)
	}
	return string(e)
}

// Check returns an error if the estimator does not support all of the given limits.
func (e Estimator) Check(limits []window.Limit) error {
	for _, l := range limits {
		switch {
		case e == AR1 && l.Resolution != 0:
			return fmt.Errorf("%s has buckets, and a level of --estimator ar1 has none; write %s", l, l.Label())
		case e == AR1 && l.Max > mostOfLevel:
			return fmt.Errorf("%s is too much for --estimator ar1; choose at most %d units, or --estimator window", l.Label(), mostOfLevel)
		}
	}
	return nil
}

const mostOfLevel = 10_000_000 // the largest Max that ar1 supports

// Limiter creates a limiter in Redis, or in memory if client is nil. It uses the fields of cfg that
// both packages share: Name, Limits, Secret, Now and Timeout.
func (e Estimator) Limiter(client rueidis.Client, cfg window.Config) (Limiter, error) {
	levels := ar1.Config{Name: cfg.Name, Limits: cfg.Limits, Secret: cfg.Secret, Now: cfg.Now, Timeout: cfg.Timeout}
	switch {
	case e == AR1 && client == nil:
		return ar1.NewLocal(levels)
	case e == AR1:
		return ar1.New(window.On(client), levels)
	case client == nil:
		return window.NewLocal(cfg)
	}
	return window.New(window.On(client), cfg)
}

// Memory returns the longest time for which a limit remembers a unit. For a window, this is Per.
// For ar1, it is the time until the level has fallen below 1/4.
func (e Estimator) Memory(l window.Limit) time.Duration {
	if e == AR1 {
		return time.Duration(min(float64(l.Per)*math.Log(4*float64(l.Max+1)), math.MaxInt64/2))
	}
	return l.Per
}

// Text formats a limit for people, for example as 5/1h.
func (e Estimator) Text(l window.Limit) string {
	if e == AR1 {
		return l.Label()
	}
	return l.String()
}

// Needless returns a limit that makes l redundant: it denies everything that l denies, because it
// allows no more than l in a longer time. If there is none, Needless returns "".
func (e Estimator) Needless(l window.Limit, limits []window.Limit) string {
	late := time.Duration(0) // a limit with buckets forgets units up to one bucket late
	if e.Text(l) != l.Label() {
		late = max(l.Per/60, l.Resolution)
	}
	for _, other := range limits {
		if other != l && other.Max <= l.Max && other.Per >= l.Per+late {
			return e.Text(other)
		}
	}
	return ""
}
