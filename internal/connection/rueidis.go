package connection

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// rueidisClient is a Client that uses a rueidis.Client.
type rueidisClient struct {
	rueidis.Client
	own     bool        // Close closes the Client
	closed  atomic.Bool // Close has closed it
	buffers sync.Pool   // unused *rueidis.Commands
}

// rueidisCluster is a Client that uses a rueidis.Client for a cluster.
type rueidisCluster struct{ rueidisClient }

func newRueidisClient(client rueidis.Client, own bool) Client {
	if client.Mode() == rueidis.ClientModeCluster {
		return &rueidisCluster{rueidisClient{Client: client, own: own}}
	}
	return &rueidisClient{Client: client, own: own}
}

// Close closes the rueidis.Client if the Connection dialed it.
func (r *rueidisClient) Close() {
	if r.own {
		r.closed.Store(true)
		r.Client.Close()
	}
}

// Send sends script calls, as one pipeline per server, and answers each of them. After Close, it
// sends nothing: the error of a closed rueidis.Client does not show that it was closed.
func (r *rueidisClient) Send(ctx context.Context, calls []*ScriptCall) {
	if r.closed.Load() {
		for _, c := range calls {
			c.Answer(nil, &UnsentError{ErrClosed, ReasonClosed})
		}
		return
	}
	if len(calls) == 1 {
		answer(calls[0], r.Do(ctx, r.build(calls[0])))
		return
	}
	buffer, _ := r.buffers.Get().(*rueidis.Commands)
	if buffer == nil {
		buffer = &rueidis.Commands{}
	}
	for _, c := range calls {
		*buffer = append(*buffer, r.build(c))
	}
	broken := false
	for i, result := range r.DoMulti(ctx, *buffer...) {
		answer(calls[i], result)
		broken = broken || result.NonRedisError() != nil
	}
	if broken { // rueidis may still be writing these commands
		return
	}
	clear(*buffer)
	*buffer = (*buffer)[:0]
	r.buffers.Put(buffer)
}

func (r *rueidisClient) build(c *ScriptCall) rueidis.Completed {
	return r.B().Arbitrary(c.Command, c.Script, strconv.Itoa(len(c.Keys))).Keys(c.Keys...).Args(c.Verb, c.Time).Args(c.Units...).Args(c.Rest...).Build()
}

// answer passes the integers and strings of a reply to c. It does not use RedisResult.AsIntSlice,
// which would accept a null or an array in place of an integer.
func answer(c *ScriptCall, result rueidis.RedisResult) {
	values, err := result.ToArray()
	raw := make([]int64, len(values))
	for i := 0; i < len(values) && err == nil; i++ {
		if c.InText && values[i].IsString() {
			text, _ := values[i].ToString()
			c.Text(i, text)
		} else {
			raw[i], err = values[i].ToInt64()
		}
	}
	c.Answer(raw, translate(err))
}

// Shares returns the ranges of hash slots, each with its master. For each range, the reply to CLUSTER SLOTS
// lists the first and the last slot, and then the address, port and ID of each node, beginning with
// the master.
func (r *rueidisCluster) Shares(ctx context.Context) ([]Share, error) {
	all, err := r.Do(ctx, r.B().ClusterSlots().Build()).ToArray()
	shares := make([]Share, len(all))
	for i := 0; i < len(all) && err == nil; i++ {
		shares[i], err = shareOf(all[i])
	}
	return shares, err
}

func shareOf(m rueidis.RedisMessage) (Share, error) {
	fields, err := m.ToArray()
	if err != nil || len(fields) < 3 {
		return Share{}, fmt.Errorf("%d fields of CLUSTER SLOTS: %w", len(fields), err)
	}
	first, err1 := fields[0].AsInt64()
	last, err2 := fields[1].AsInt64()
	master, err3 := fields[2].ToArray()
	if err := errors.Join(err1, err2, err3); err != nil || len(master) < 3 {
		return Share{}, fmt.Errorf("%d fields of a node in CLUSTER SLOTS: %w", len(master), err)
	}
	id, err := master[2].ToString()
	return Share{int(first), int(last), id}, err
}
