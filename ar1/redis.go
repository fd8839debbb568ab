package ar1

import (
	"context"
	"fmt"

	"github.com/slidegate/slidegate/internal/gate"
)

// redis keeps the levels in Redis, where ar1.lua decides.
type redis struct {
	*gate.Redis[Usage]
	l *gate.Limiter[Usage]
}

func (r redis) inspect(ctx context.Context, event string) (now int64, usage []Usage, ones []int64, err error) {
	reply, err := r.Inspect(ctx, event)
	if err != nil {
		return 0, nil, nil, err
	}
	if len(reply) != 2+4*len(r.l.Limits) {
		return 0, nil, nil, fmt.Errorf("the script replied %d integers that are no snapshot of %d limits", len(reply), len(r.l.Limits))
	}
	for i := range r.l.Limits {
		of := reply[2+4*i:]
		usage = append(usage, r.l.Usage(i, of[0], gate.Milliseconds(of[1]), gate.Milliseconds(of[2])))
		ones = append(ones, of[3])
	}
	return reply[1], usage, ones, nil
}
