package gate

import (
	"errors"
	"time"

	"github.com/slidegate/slidegate/internal/remote"
)

// Observation is what an observer is told, without the name of the limiter.
type Observation[U any] struct {
	Kind     string
	Units    int64
	Decision Decision[U]
	Took     time.Duration
	Part     int
}

// The kinds of an Observation.
const (
	Allowed     = "allowed"
	Denied      = "denied"
	Outage      = "outage"
	Uncertain   = "uncertain"
	Refused     = "refused"
	Peeked      = "peeked"
	OutageBegan = "outage began"
	OutageEnded = "outage ended"
	CacheOff    = "denial cache off"
)

func kindOf(v Verb, allowed bool, err error) string {
	switch {
	case v == Peek:
		return Peeked
	case errors.Is(err, remote.ErrUncertain):
		return Uncertain
	case errors.Is(err, remote.ErrOutage):
		return Outage
	case err != nil:
		return Refused
	case allowed:
		return Allowed
	}
	return Denied
}

// turned tells of the begin or end of an outage.
func (l *Limiter[U]) turned(part int, began bool) {
	kind := OutageEnded
	if began {
		kind = OutageBegan
	}
	if l.Observe != nil {
		l.Observe(Observation[U]{Kind: kind, Part: part})
	}
}

// tell tells of what concerns no event.
func (l *Limiter[U]) tell(kind string) {
	if l.Observe != nil {
		l.Observe(Observation[U]{Kind: kind})
	}
}
