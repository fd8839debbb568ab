package ar1

import (
	"context"
	"time"

	"github.com/slidegate/slidegate/internal/gate"
)

// redis keeps the levels in Redis, where ar1.lua decides.
type redis struct{ *gate.Redis[Usage] }

func (r redis) inspect(ctx context.Context, event string) (time.Time, []LimitState, error) {
	reply, err := r.Inspect(ctx, event, func(reply []int64, limits int) bool { return len(reply) == 2+4*limits })
	if err != nil {
		return time.Time{}, nil, err
	}
	var d decision
	states := make([]LimitState, len(r.L.Limits))
	for i := range states {
		of := reply[2+4*i:]
		r.L.Use(&d, i, of[0], of[1], of[2])
		states[i] = newLimitState(d.Usage[i], of[3])
	}
	return time.UnixMicro(reply[1]).UTC(), states, nil
}
