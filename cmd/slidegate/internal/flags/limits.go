package flags

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/estimator"
	"github.com/slidegate/slidegate/internal/limiter"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

// Limits holds the limits of all --limit flags. Each flag may give several, separated by commas.
type Limits []window.Limit

// Decode adds the limits of one flag.
func (ls *Limits) Decode(c *kong.DecodeContext) error {
	return eachValue(c, "5/1h", ls.add)
}

func (ls *Limits) add(s string) error {
	l, err := window.ParseLimit(s)
	if err == nil && len(*ls) == limiter.MaxLimits {
		err = fmt.Errorf("%s is limit number %d; a limiter has at most %d", s, limiter.MaxLimits+1, limiter.MaxLimits)
	}
	for _, other := range *ls {
		if err == nil && l.Per == other.Per {
			err = fmt.Errorf("%v and %s have the same window; keep the tighter one", other, s)
		}
	}
	*ls = append(*ls, l)
	return err
}

// ParseLimits parses comma-separated limits, such as 1/5s,5/1h.
func ParseLimits(text string) (ls Limits, err error) {
	for limit := range strings.SplitSeq(text, ",") {
		if err := ls.add(limit); err != nil {
			return nil, err
		}
	}
	return ls, nil
}

// Texts returns each limit as a string, such as 5/1h.
func (ls Limits) Texts() (texts []string) {
	for _, l := range ls {
		texts = append(texts, l.String())
	}
	return texts
}

// Texts holds the values of all --limit flags of inspect. How a limit is parsed depends on other
// flags.
type Texts []string

// Decode adds the values of one flag.
func (ts *Texts) Decode(c *kong.DecodeContext) error {
	return eachValue(c, "5/1h", func(s string) error {
		*ts = append(*ts, s)
		return nil
	})
}

// Sets holds the limits of all --compare flags: one set per flag.
type Sets []Limits

// Decode adds the set of one flag.
func (ss *Sets) Decode(c *kong.DecodeContext) error {
	var set Limits
	err := eachValue(c, "3/10m,20/1d", set.add)
	*ss = append(*ss, set)
	return err
}

// Budgets holds the limits of all --budget flags. Of is nil if there is no such flag.
type Budgets struct{ Of map[login.Budget]Limits }

// budgetNames lists the budgets of a login guard that have limits.
var budgetNames = []login.Budget{
	login.BudgetAccount, login.BudgetAddress, login.BudgetPair, login.BudgetStreak, login.BudgetTotal,
	login.BudgetChallengedAccount, login.BudgetChallengedAddress, login.BudgetChallengedPair, login.BudgetChallengedStreak,
}

// Decode adds the limits of one flag.
func (bs *Budgets) Decode(c *kong.DecodeContext) error {
	text, err := value(c, "one, as in account=10/10m,20/1h")
	if err != nil {
		return err
	}
	name, limits, found := strings.Cut(text, "=")
	b := login.Budget(name)
	switch {
	case !found || !slices.Contains(budgetNames, b):
		return fmt.Errorf("%q is not a budget; write one of %v with its limits, as in account=10/10m,20/1h", text, budgetNames)
	case bs.Of[b] != nil:
		return fmt.Errorf("the budget %s is given twice; write its limits in one flag, as in %s=10/10m,20/1h", b, b)
	}
	if bs.Of == nil {
		bs.Of = map[login.Budget]Limits{}
	}
	bs.Of[b], err = ParseLimits(limits)
	return err
}

// Estimator is the value of the flag --estimator.
type Estimator struct{ estimator.Estimator }

// Decode parses the flag.
func (e *Estimator) Decode(c *kong.DecodeContext) error {
	name, err := value(c, "window or ar1")
	if err != nil {
		return err
	}
	chosen := estimator.Estimator(name)
	switch {
	case chosen != estimator.Window && chosen != estimator.AR1:
		return fmt.Errorf("there is no estimator %q; choose window or ar1", name)
	case e.Estimator != "":
		return errors.New("it is given twice; replay twice to compare both")
	}
	e.Estimator = chosen
	return nil
}
