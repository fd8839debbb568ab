package window

import (
	"context"
	"time"

	"github.com/slidegate/slidegate/internal/gate"
)

// redis keeps the counts in Redis, where window.lua decides.
type redis struct{ *gate.Redis[Usage] }

func (r redis) inspect(ctx context.Context, event string) (time.Time, []LimitState, error) {
	reply, err := r.Inspect(ctx, event, listsBuckets)
	if err != nil {
		return time.Time{}, nil, err
	}
	at, reply := utc(reply[1]), reply[2:]
	var d decision
	states := make([]LimitState, len(r.L.Limits))
	for i := range states {
		r.L.Use(&d, i, reply[0], reply[1], reply[2])
		states[i].Usage = d.Usage[i]
		for pairs := reply[4 : 4+2*reply[3]]; len(pairs) > 0; pairs = pairs[2:] {
			states[i].Buckets = append(states[i].Buckets, Bucket{Last: utc(pairs[0]), Units: pairs[1]})
		}
		reply = reply[4+2*reply[3]:]
	}
	return at, states, nil
}

// listsBuckets tells whether a reply to inspect is whole.
func listsBuckets(reply []int64, limits int) bool {
	at := int64(2)
	for range limits {
		if at+4 > int64(len(reply)) || reply[at+3] < 0 {
			return false
		}
		at += 4 + 2*reply[at+3]
	}
	return at == int64(len(reply))
}

func utc(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
