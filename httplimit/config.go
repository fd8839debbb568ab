package httplimit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/slidegate/slidegate/internal/adapter"
)

var errNoKey = errors.New("slidegate: httplimit has no Key, which says who is limited; use the Key of httplimit.Clients. " +
	"The Key is also nil if Header or Cookie got an empty or invalid name, or if And got a nil Key")

// check returns an error if cfg is invalid. The error states the problem and the remedy.
func (cfg *Config) check() error {
	deciders := set(field{"Limiter", !adapter.IsNil(cfg.Limiter)}, field{"Choose", cfg.Choose != nil}, field{"Checks", cfg.Checks != nil})
	unfit := set(field{"Key", cfg.Key != nil}, field{"Cost", cfg.Cost != nil}, field{"CountOnly", cfg.CountOnly != nil}, field{"CostAfter", cfg.CostAfter != nil})
	switch {
	case len(deciders) == 0:
		return errors.New("slidegate: httplimit has no Limiter; create one with window.New or ar1.New, or set Choose or Checks")
	case len(deciders) > 1:
		return fmt.Errorf("slidegate: httplimit has %s; set only one of them", strings.Join(deciders, " and "))
	case cfg.Checks != nil && len(unfit) > 0:
		return fmt.Errorf("slidegate: httplimit has Checks and %s; leave one out, since each check has its own Event and units, which are not given back or settled", unfit[0])
	case cfg.Checks == nil && cfg.Key == nil:
		return errNoKey
	case cfg.Outage != FailOpen && cfg.Outage != FailClosed:
		return fmt.Errorf("slidegate: httplimit has the Outage %q; choose %q to allow requests while the limiter does not answer, or %q to refuse them", cfg.Outage, FailOpen, FailClosed)
	case deciders[0] == "Limiter":
		return cfg.checkSettles(cfg.Limiter)
	}
	return nil
}

// field names a field of Config, and states whether it is set.
type field struct {
	name  string
	isSet bool
}

// set returns the names of those fields that are set.
func set(fields ...field) (names []string) {
	for _, f := range fields {
		if f.isSet {
			names = append(names, f.name)
		}
	}
	return names
}
