package ar1

import (
	"context"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/gate"
)

// redis keeps the levels in Redis, where ar1.lua decides.
type redis struct {
	*gate.Redis[Usage]
	l *gate.Limiter[Usage]
}

func (r redis) inspect(ctx context.Context, event string) (time.Time, []LimitState, error) {
	reply, err := r.Inspect(ctx, event)
	if err != nil {
		return time.Time{}, nil, err
	}
	if len(reply) != 2+4*len(r.l.Limits) {
		return time.Time{}, nil, fmt.Errorf("the script replied %d integers that are no snapshot of %d limits", len(reply), len(r.l.Limits))
	}
	var d decision
	states := make([]LimitState, len(r.l.Limits))
	for i := range states {
		of := reply[2+4*i:]
		r.l.Use(&d, i, of[0], of[1], of[2])
		states[i] = newLimitState(d.Usage[i], of[3])
	}
	return time.UnixMicro(reply[1]).UTC(), states, nil
}
